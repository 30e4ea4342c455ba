"""GPUs, by NVIDIA's own library (NVML), and the one of an Apple chip. A machine without them has none; no error."""

import platform
import sys

from exo.domain.node import Gpu, GpuGauges
from exo.node.nvml import TEMPERATURE_GPU, Nvml, handles, said, system_nvml
from exo.node.visible_gpus import visible_handles

UNIFIED_NAMES = ("GB10", "Thor", "Orin")
"""Chips whose GPU works in the machine's own memory: DGX Spark, Jetson."""


def gpus(library: Nvml | None = None) -> tuple[Gpu, ...]:
    """Those that CUDA shows. With unified memory `total_bytes` is 0: the machine's own bytes already count it."""
    if sys.platform == "darwin":
        return (Gpu(name="Apple GPU", total_bytes=0, unified=True),) if platform.machine() == "arm64" else ()
    nvml = library or system_nvml()
    with visible_handles(nvml) as found:
        return tuple(_gpu(nvml, handle) for handle in found)


def gpu_gauges(library: Nvml | None = None) -> tuple[GpuGauges, ...]:
    """Live figures, in the order of `gpus()`; None for each that the driver does not say."""
    if sys.platform == "darwin":
        return (GpuGauges(),) if platform.machine() == "arm64" else ()
    nvml = library or system_nvml()
    with visible_handles(nvml) as found:
        return tuple(_gauges(nvml, handle) for handle in found)


def driver_answers(library: Nvml | None = None) -> bool:
    """Whether NVIDIA's driver lists a GPU, be it one that CUDA is told to hide."""
    with handles(library or system_nvml()) as found:
        return bool(found)


def _gpu(nvml: Nvml, handle: object) -> Gpu:
    name = said(nvml, lambda: nvml.nvmlDeviceGetName(handle)) or "NVIDIA GPU"
    name = name.decode(errors="replace") if isinstance(name, bytes) else name
    memory = said(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    # A driver that says no memory has none of its own to say: GB10's answers "not supported".
    if memory is None or any(chip in name for chip in UNIFIED_NAMES):
        return Gpu(name=name, total_bytes=0, unified=True)
    return Gpu(name=name, total_bytes=memory.total)


def _gauges(nvml: Nvml, handle: object) -> GpuGauges:
    memory = said(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    utilization = said(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    temperature = said(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, TEMPERATURE_GPU))
    milliwatts = said(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    return GpuGauges(
        free_bytes=None if memory is None else memory.free,
        utilization=None if utilization is None else utilization.gpu / 100,
        temperature_c=temperature,
        power_w=None if milliwatts is None else milliwatts / 1000,
    )
