"""Child processes that fetch something: ended when the caller asks, when they are late, and when the caller fails."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exo.models.progress import Cancelled, IsCancelled

POLL_SECONDS = 0.2
"""How often a child is looked at; so long a cancellation may take to be seen."""
GRACE_SECONDS = 3.0
"""Between SIGTERM and SIGKILL."""
OUTPUT_TAIL = 2000
"""Characters of the child's output that an error shows."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. `code` is None when it was ended here, because nothing had come for too long."""

    code: int | None
    output: str
    """The end of what it wrote."""


def run_child(
    command: Sequence[str],
    *,
    stall_seconds: float,
    cancelled: IsCancelled,
    measure: Callable[[], int],
) -> Ended:
    """Runs the command to its end, or until `measure()`, called every 0.2 s, stays the same for `stall_seconds`.

    `measure` says how many bytes there are by now. Raises Cancelled, after the child has ended, when asked to stop.
    """
    with tempfile.TemporaryFile() as output:
        # A session of its own: a Ctrl-C at the terminal reaches the parent, which then ends the child in order.
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = _wait(child, stall_seconds, cancelled, measure)
        finally:
            _end(child)
        output.seek(0)
        return Ended(code, output.read().decode(errors="replace").strip()[-OUTPUT_TAIL:])


def _wait(
    child: "subprocess.Popen[bytes]", stall_seconds: float, cancelled: IsCancelled, measure: Callable[[], int]
) -> int | None:
    seen, since = -1, time.monotonic()
    while True:
        try:
            return child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        if cancelled():
            raise Cancelled("cancelled")
        now = measure()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > stall_seconds:
            return None


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
