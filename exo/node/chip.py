"""The processor's name, as its maker writes it."""

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from exo.node.command import output_of

CPUINFO = Path("/proc/cpuinfo")
SYSCTL_SECONDS = 2.0

ARM, APPLE = "0x41", "0x61"
CORES = {
    (ARM, "0xd03"): "Cortex-A53",
    (ARM, "0xd08"): "Cortex-A72",
    (ARM, "0xd0b"): "Cortex-A76",
    (ARM, "0xd0c"): "Neoverse-N1",
    (ARM, "0xd40"): "Neoverse-V1",
    (ARM, "0xd42"): "Cortex-A78AE",
    (ARM, "0xd49"): "Neoverse-N2",
    (ARM, "0xd4f"): "Neoverse-V2",
    (ARM, "0xd84"): "Neoverse-V3",
    (ARM, "0xd85"): "Cortex-X925",
    (ARM, "0xd87"): "Cortex-A725",
    (APPLE, "0x022"): "Apple M1",
    (APPLE, "0x023"): "Apple M1",
    (APPLE, "0x032"): "Apple M2",
    (APPLE, "0x033"): "Apple M2",
}
"""By implementer and part, as the cores name themselves (MIDR_EL1); of those on which models are likely to run.
Linux' arch/arm64/include/asm/cputype.h has them all."""


def chip(cpuinfo: Path = CPUINFO) -> str:
    """`Apple M4 Max`, `AMD Ryzen 9 7950X 16-Core Processor`; the architecture where the system says no name."""
    name = _from_sysctl() if sys.platform == "darwin" else from_cpuinfo(cpuinfo)
    return name or platform.machine() or "unknown"


def from_cpuinfo(file: Path) -> str | None:
    """The first `model name` in `/proc/cpuinfo`. ARM kernels write none: there, the kinds of cores, `Cortex-X925 and
    Cortex-A725`."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    names = (" ".join(value.split()) for key, value in _entries(lines) if key == "model name")
    return next((name for name in names if name), None) or " and ".join(_arm_cores(lines)) or None


def _arm_cores(lines: list[str]) -> list[str]:
    """The names of the kinds of cores, the last ones first: small ones come first in the list."""
    found: dict[str, None] = {}
    implementer = ""
    for key, value in _entries(lines):
        if key == "CPU implementer":
            implementer = value
        elif key == "CPU part" and (implementer, value) in CORES:
            found[CORES[implementer, value]] = None
    return list(reversed(found))


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()


def _from_sysctl() -> str | None:
    said = output_of(("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"), SYSCTL_SECONDS)
    return (said or "").strip() or None
