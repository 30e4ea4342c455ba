"""The processors that this process may use, and how many of them others keep busy."""

import math
import os
import time
from pathlib import Path

import psutil

from exo.node.container import cpu_quota

TOPOLOGY = Path("/sys/devices/system/cpu")
BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""Kinds of time that a processor is kept from us; psutil's `guest` is part of `user`."""


def usable_cores() -> int:
    """Logical processors that this process may run on: its affinity, and its container's quota where that is less."""
    quota = cpu_quota()
    count = len(_own_processors())
    return count if quota is None else max(1, min(count, math.floor(quota)))


def compute_cores(topology: Path = TOPOLOGY) -> int:
    """As `usable_cores`, with the threads of one physical core counted once: they share its arithmetic units."""
    return min(usable_cores(), len({_core(topology, processor) for processor in _own_processors()}))


class OthersUse:
    """How many of the processors that we may use are kept busy by others, between two calls."""

    def __init__(self) -> None:
        self._seen = self._look()

    def measure(self) -> float:
        """Processors' worth of work of other processes since the last call; a tick of the kernel's clock is 10 ms."""
        now, busy, own = self._look()
        then, busy_before, own_before = self._seen
        self._seen = now, busy, own
        return max(0.0, (busy - busy_before) - (own - own_before)) / max(1e-3, now - then)

    def _look(self) -> tuple[float, float, float]:
        """Seconds: the clock, busy time of our processors, our own."""
        every = psutil.cpu_times(percpu=True)
        ours = [every[processor] for processor in _own_processors() if processor < len(every)]
        busy = sum(sum(getattr(times, kind, 0.0) for kind in BUSY) for times in ours)
        return time.monotonic(), busy, time.process_time()


def _own_processors() -> set[int]:
    """macOS has no affinity: all of them."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _core(topology: Path, processor: int) -> str:
    """What the threads of one core have in common; the processor itself where the system says nothing."""
    try:
        return (topology / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text(encoding="utf-8").strip()
    except OSError:
        return str(processor)
