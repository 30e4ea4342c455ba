"""One model, one writer: a file lock that two processes with one home, and two threads of one, respect."""

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from exo.errors import Fatal
from exo.models.progress import Cancelled, IsCancelled

POLL_SECONDS = 0.2


@contextmanager
def locked(file: Path, cancelled: IsCancelled) -> Generator[None]:
    """Holds the lock `file`, which is made where it is missing and stays. Waits; raises Cancelled when asked to stop.

    The system releases it when the process ends, however it ends.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        pause = threading.Event()
        while not _taken(descriptor):
            if cancelled():
                raise Cancelled("cancelled while another process was preparing the same model")
            pause.wait(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def only_one(home: Path, process: str) -> Generator[None]:
    """Lets one process of a kind, such as `worker`, run with a home.

    Raises Fatal that names the other where there is one.
    """
    file = home / f"{process}.lock"
    with locked_if_free(file) as free:
        if not free:
            raise Fatal(f"another {process} runs with the home {home}{named(file)}: end it, or set EXO_HOME to another")
        yield


@contextmanager
def locked_if_free(file: Path) -> Generator[bool]:
    """Whether the lock could be had at once; held until the end of the block if so.

    Raises Fatal where the folder cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Fatal(f"the home folder {file.parent} cannot be used: {error}; set EXO_HOME to another") from error
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)


def named(file: Path) -> str:
    """Which process holds a lock, and how to end it, in brackets; empty where nothing says so."""
    try:
        pid = int(file.read_text())
    except (OSError, ValueError):
        return ""
    return f" (`kill {pid}` ends it)"


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    with suppress(OSError):  # of a full disk; the lock holds without it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return True
