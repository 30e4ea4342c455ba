"""Work in a thread of its own, which does not keep the process from exiting."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def started(work: Callable[[], T], name: str) -> Future[T]:
    """What `work` returns or raises, once it has; it runs already, in a thread with this name."""
    future = Future[T]()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_run, args=(work, future), name=name, daemon=True).start()
    return future


def _run(work: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
