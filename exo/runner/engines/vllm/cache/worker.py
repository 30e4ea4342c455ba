"""vLLM's workers, with keys and values in memory that can grow: classes for its option `worker_cls`.

It is not `worker_extension_cls`, since an extension may add methods, but not say where the memory comes from.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, cast

import torch
from torch.overrides import TorchFunctionMode
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheTensor
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_worker import Worker

from exo.errors import Fatal
from exo.runner.engines.vllm.cache.cuda_memory import CudaMemory
from exo.runner.engines.vllm.cache.host_memory import HostMemory
from exo.runner.engines.vllm.cache.policy import FEWEST
from exo.runner.engines.vllm.cache.ranges import Range, block_ranges
from exo.runner.engines.vllm.memory import free_bytes


class CacheMemory(Protocol):
    """Addresses with memory behind some of them."""

    @property
    def tensor(self) -> torch.Tensor:
        """All of them, as bytes."""
        ...

    def commit(self, part: Range) -> None:
        """Memory of zeros behind a range. Raises MemoryError."""
        ...

    def release(self, part: Range) -> None:
        """Gives back what lies within a range."""
        ...


class TakenFrom(TorchFunctionMode):
    """While it is entered, `torch.zeros` of bytes gives memory of ours: vLLM makes keys and values so."""

    def __init__(self, allocate: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self._allocate = allocate

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        given = dict(kwargs or {})
        if func is torch.zeros and given.get("dtype") is torch.int8 and isinstance(args[0], int):
            return self._allocate(args[0])
        return func(*args, **given)


class GrowingWorker(Worker):
    """What both have in common. A block has memory once it was committed; vLLM is not given it before."""

    _cache: CacheMemory | None = None
    _placements: list[KVCacheTensor]

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        self._placements = kv_cache_config.kv_cache_tensors
        super().initialize_from_config(kv_cache_config)
        if self._cache is None:
            raise Fatal("this version of vLLM takes the memory of keys and values elsewhere")

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[object]:
        if tag == "kv_cache":
            return TakenFrom(self._allocated)
        return cast(AbstractContextManager[object], super()._maybe_get_memory_pool_context(tag))

    def commit_blocks(self, first: int, end: int) -> bool:
        """Memory for the blocks `first` up to `end`; False where there is none."""
        assert self._cache is not None
        try:
            for part in block_ranges(self._placements, first, end):
                self._cache.commit(part)
        except MemoryError:
            return False
        return True

    def release_blocks(self, first: int, end: int) -> None:
        """Gives back the memory of the blocks `first` up to `end`."""
        assert self._cache is not None
        for part in block_ranges(self._placements, first, end):
            self._cache.release(part)

    def free_memory(self) -> int:
        """Bytes that may still be taken."""
        return free_bytes()

    def _allocated(self, size: int) -> torch.Tensor:
        assert self.device is not None
        self._cache = HostMemory(size) if self.device.type == "cpu" else CudaMemory(size, self.device)
        if not self.commit_blocks(0, FEWEST):
            raise Fatal("no memory for keys and values")
        return self._cache.tensor


class GrowingCpuWorker(GrowingWorker, CPUWorker):
    """On the CPU."""

    def determine_available_memory(self) -> int:
        """The limit that was asked for. vLLM refuses one that is not free at once, and most of it is never taken."""
        asked = self.cache_config.kv_cache_memory_bytes
        return super().determine_available_memory() if asked is None else asked


class GrowingGpuWorker(GrowingWorker):
    """On one NVIDIA GPU."""
