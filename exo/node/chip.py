"""The processor's name, as its maker writes it."""

import platform
import sys
from pathlib import Path

from exo.node.command import output_of

CPUINFO = Path("/proc/cpuinfo")
SYSCTL_SECONDS = 2.0


def chip(cpuinfo: Path = CPUINFO) -> str:
    """`Apple M4 Max`, `AMD Ryzen 9 7950X 16-Core Processor`; the architecture where the system says no name."""
    name = _from_sysctl() if sys.platform == "darwin" else from_cpuinfo(cpuinfo)
    return name or platform.machine() or "unknown"


def from_cpuinfo(file: Path) -> str | None:
    """The first `model name` in `/proc/cpuinfo`; ARM kernels write none."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((" ".join(name.split()) for name in names if name), None)


def _from_sysctl() -> str | None:
    said = output_of(("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"), SYSCTL_SECONDS)
    return (said or "").strip() or None
