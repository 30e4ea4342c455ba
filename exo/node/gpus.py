"""GPUs, by NVIDIA's own library (NVML). A machine without its driver has none; that is never an error."""

import platform
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import pynvml

from exo.domain.node import Gpu, GpuGauges

T = TypeVar("T")

UNIFIED_NAMES = ("GB10", "Thor", "Orin")
"""Chips whose GPU works in the machine's own memory: DGX Spark, Jetson."""


def gpus() -> tuple[Gpu, ...]:
    """Every GPU, in NVML's order. One with unified memory has `total_bytes` 0: the machine's memory already counts it."""
    if sys.platform == "darwin":
        return (Gpu(name="Apple GPU", total_bytes=0, unified=True),) if platform.machine() == "arm64" else ()
    with _handles() as handles:
        return tuple(_gpu(handle) for handle in handles)


def gpu_gauges() -> tuple[GpuGauges, ...]:
    """Live figures, in the order of `gpus()`; None for each that the driver does not say."""
    if sys.platform == "darwin":
        return (GpuGauges(),) if platform.machine() == "arm64" else ()
    with _handles() as handles:
        return tuple(_gauges(handle) for handle in handles)
