"""Devices on the PCI bus, which the system sees before any driver does."""

from pathlib import Path

from exo.node.small_file import text_of

PCI = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
DISPLAY = "0x03"
"""How the class of graphics cards and of GPUs without an output begins (https://pcisig.com: class codes)."""


def has_nvidia_gpu(devices: Path = PCI) -> bool:
    """Whether there is one, with a driver or without. A container sees those of its host."""
    return any(
        text_of(device / "vendor") == NVIDIA and text_of(device / "class").startswith(DISPLAY)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )
