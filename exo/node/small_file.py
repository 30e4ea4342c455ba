"""The one line that the kernel writes into each of its small files below /sys and /proc."""

from pathlib import Path


def text_of(file: Path) -> str:
    """Without what the kernel puts at its end; empty where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    except OSError:
        return ""
