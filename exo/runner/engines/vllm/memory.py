"""Memory that vLLM may still take on this process's device, and that it has taken."""

import resource

import torch

from exo.node.container import available_memory

KILOBYTE = 1024
UTILIZATION_LEAST = 0.01
"""vLLM does not begin where this share of a GPU is not free, and has no other use for it: the cache's size is said."""


def free_bytes() -> int:
    """Bytes free on the GPU; on the CPU, and on a GPU with the system's memory, what the system calls available."""
    if not torch.cuda.is_available() or torch.cuda.get_device_properties().is_integrated:
        return available_memory()
    return torch.cuda.mem_get_info()[0]


def peak_bytes() -> int:
    """The most that torch's allocator had on the GPU at once; on the CPU, that the process had."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE
