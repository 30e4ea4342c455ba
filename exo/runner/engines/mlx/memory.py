"""Memory that MLX may still take on its default device."""

import resource

import mlx.core as mx
import psutil

from exo.node.container import available_memory


def free_bytes() -> int:
    """Bytes free for new arrays, those counted that MLX keeps for reuse.

    CUDA reports what is free. Metal names a working set that is not to be exceeded (about three quarters of unified
    memory). On the CPU it is what the system calls available, and what limits on a container or this process leave.
    """
    info = mx.device_info()
    reusable = mx.get_cache_memory()
    if "free_memory" in info:
        return int(info["free_memory"]) + reusable
    if "max_recommended_working_set_size" in info:
        within_limit = int(info["max_recommended_working_set_size"]) - mx.get_active_memory()
        return min(within_limit, _available() + reusable)
    return _available() + reusable


def shares_host() -> bool:
    """Whether arrays lie in the memory that this process has its own things in."""
    return "free_memory" not in mx.device_info()


def _available() -> int:
    available = available_memory()
    left = _address_space_left()
    return available if left is None else min(available, left)


def _address_space_left() -> int | None:
    """What `ulimit -v` leaves this process; None without such a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else max(0, limit - psutil.Process().memory_info().vms)
