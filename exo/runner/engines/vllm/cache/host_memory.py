"""Memory of the system at addresses that are reserved beforehand."""

import errno
import mmap

import torch

from exo.runner.engines.vllm.cache.ranges import Range, around, within

MAP_NORESERVE = 0x4000
MADV_POPULATE_WRITE = 23
"""Both from Linux' asm-generic/mman-common.h; Python has no names for them."""


class HostMemory:
    """Pages that the system gives when they are committed, filled with zeros, and gets back when they are released."""

    def __init__(self, size: int) -> None:
        """Addresses for `size` bytes."""
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        self.tensor = torch.frombuffer(self._map, dtype=torch.int8)
        """All of it, as bytes. It keeps the memory alive."""

    def commit(self, part: Range) -> None:
        """Raises MemoryError where the system has no pages left."""
        first, end = around(part, mmap.PAGESIZE)
        try:
            self._map.madvise(MADV_POPULATE_WRITE, first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise MemoryError(str(error)) from error
            self.tensor[part[0] : part[1]] = 0  # Linux before 5.14: a page is there once it was written to

    def release(self, part: Range) -> None:
        """What is in it is gone."""
        first, end = within(part, mmap.PAGESIZE)
        if first < end:
            self._map.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE)
