"""The memory and processor time that a container leaves us, which are often less than the machine has (cgroup v2).

https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files and #cpu-interface-files
"""

from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def memory_limit(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUP) -> int | None:
    """The least `memory.max` from our group up to the root, in bytes; None without a limit, or without cgroup v2."""
    limits = [limit for group in _groups(root, own) if (limit := _number(group / "memory.max")) is not None]
    return min(limits, default=None)


def memory_left(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUP) -> int | None:
    """Bytes until the first of those limits; file pages that can be dropped count as free. None without a limit."""
    left: list[int] = []
    for group in _groups(root, own):
        limit = _number(group / "memory.max")
        used = _number(group / "memory.current")
        if limit is not None and used is not None:
            left.append(max(0, limit - used + _inactive_file(group)))
    return min(left, default=None)


def available_memory() -> int:
    """Bytes that the system calls available, or what limits on our container leave where that is less."""
    available = psutil.virtual_memory().available
    left = memory_left()
    return available if left is None else min(available, left)


def cpu_quota(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUP) -> float | None:
    """The least `cpu.max` from our group up to the root, in processors; None without a limit, or without cgroup v2."""
    quotas = [quota for group in _groups(root, own) if (quota := _quota(group / "cpu.max")) is not None]
    return min(quotas, default=None)


def _groups(root: Path, own: Path) -> list[Path]:
    """Our cgroup and those that contain it."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    relative = next((line[3:].strip("/") for line in lines if line.startswith("0::")), None)
    if relative is None:
        return []
    group = root / relative
    return [group, *(parent for parent in group.parents if parent == root or root in parent.parents)]


def _number(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _quota(file: Path) -> float | None:
    """`cpu.max` holds microseconds of processor time, or "max", in a period of so many microseconds."""
    try:
        time, period = file.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    return int(time) / int(period) if time.isdigit() and period.isdigit() and int(period) > 0 else None


def _inactive_file(group: Path) -> int:
    try:
        lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
