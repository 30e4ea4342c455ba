"""Whether the `honcho` that started this process still runs: it starts each process in a session of its own, where
neither a closed terminal nor its own death reaches it."""

import os
from collections.abc import Callable

import psutil

VARIABLE = "HONCHO_PROCESS_NAME"
"""Set by honcho in what it starts."""


def honcho_watch() -> Callable[[], bool]:
    """A function that says whether honcho is gone. Never, for a process that somebody else started.

    Between honcho and this process is one more of honcho's: both live while neither this process nor that one is
    adopted by another, as orphans are.
    """
    if VARIABLE not in os.environ:
        return lambda: False
    began = _ancestors()
    return lambda: _ancestors() != began


def _ancestors() -> tuple[int, int | None]:
    """The ids of the parent, and of its parent where it has one."""
    parent = os.getppid()
    try:
        return parent, psutil.Process(parent).ppid()
    except psutil.Error:
        return parent, None
