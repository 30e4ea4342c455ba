"""What a program of the operating system says."""

import subprocess
from collections.abc import Sequence


def output_of(command: Sequence[str], seconds: float) -> str | None:
    """Its standard output; None where there is no such program, it fails, or it takes longer."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return ended.stdout if ended.returncode == 0 else None
