"""Memory that vLLM may still take on this process's device, and that it has taken."""

import resource

import torch

from exo.node.container import available_memory

KILOBYTE = 1024
UTILIZATION_LEAST = 0.01
"""vLLM does not begin where this share of a GPU is not free, and has no other use for it: the cache's size is said."""


def is_on_gpu() -> bool:
    """Whether torch, and so vLLM, computes on a GPU."""
    return torch.cuda.is_available()


def free_bytes() -> int:
    """Bytes free on the GPU; on the CPU, and on a GPU with the system's memory, what the system calls available."""
    if not torch.cuda.is_available() or torch.cuda.get_device_properties().is_integrated:
        return available_memory()
    return torch.cuda.mem_get_info()[0]


def least_free(gpus: int) -> int:
    """Bytes free where least are, of the first `gpus` ones that a model is divided over."""
    return free_bytes() if gpus == 1 else min(torch.cuda.mem_get_info(index)[0] for index in range(gpus))


def peak_of_worker(worker: object) -> int:
    """`peak_bytes` of the process of one of vLLM's workers, which calls it with itself."""
    return peak_bytes()


def peak_bytes() -> int:
    """The most that torch's allocator had on the GPU at once; on the CPU, that the process had."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE
