"""Memory of an NVIDIA GPU at addresses that are reserved beforehand, so that CUDA graphs stay valid while it grows."""

import weakref

import torch

from exo.runner.engines.vllm.cache.cuda_driver import AddressRange
from exo.runner.engines.vllm.cache.pieces import Pieces
from exo.runner.engines.vllm.cache.ranges import Range


class CudaMemory:
    """Pieces that the driver gives when they are committed, filled with zeros, and gets back when they are released."""

    def __init__(self, size: int, device: torch.device) -> None:
        """Addresses for `size` bytes, with memory behind the first: torch asks there which GPU they are on.

        Raises MemoryError where there is none.
        """
        addresses = AddressRange(size, device.index or 0)
        self._pieces = Pieces(addresses)
        self._device = device
        weakref.finalize(self, _free, self._pieces, addresses)
        self.commit((0, 1))
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|i1",
            "data": (addresses.begin, False),
            "version": 3,
        }

    @property
    def tensor(self) -> torch.Tensor:
        """All of it, as bytes. It keeps the memory alive."""
        return torch.as_tensor(self, device=self._device)

    def commit(self, part: Range) -> None:
        """Raises MemoryError where the GPU has none left."""
        self._pieces.commit(part)
        torch.cuda.synchronize(self._device)  # the zeros come on another stream than vLLM's

    def release(self, part: Range) -> None:
        """What is in it is gone."""
        torch.cuda.synchronize(self._device)
        self._pieces.release(part)


def _free(pieces: Pieces, addresses: AddressRange) -> None:
    torch.cuda.synchronize()
    pieces.clear()
    addresses.free()
