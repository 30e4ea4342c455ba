"""Devices on the PCI bus, which the system sees before any driver does."""

from pathlib import Path

PCI = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
DISPLAY = "0x03"
"""How the class of graphics cards and of GPUs without an output begins (https://pcisig.com: class codes)."""


def has_nvidia_gpu(devices: Path = PCI) -> bool:
    """Whether there is one, with a driver or without. A container sees those of its host."""
    return any(
        _text(device / "vendor") == NVIDIA and _text(device / "class").startswith(DISPLAY)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
