"""Room on disk, asked for before the first byte is written."""

import shutil
from collections.abc import Callable
from pathlib import Path

from exo.errors import Rejected

FreeBytes = Callable[[Path], int]


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write below `folder`, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require_space(folder: Path, needed: int, purpose: str, free: FreeBytes = free_bytes) -> None:
    """Raises Rejected, with both figures in bytes, unless `needed` bytes fit below `folder`."""
    available = free(folder)
    if available < needed:
        raise Rejected(
            f"{purpose} needs {needed:,} bytes in {folder}, and {available:,} are free: "
            f"free {needed - available:,} bytes there, or choose another models folder",
            code="insufficient_storage",
        )
