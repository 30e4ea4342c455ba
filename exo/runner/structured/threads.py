"""Where constraints are compiled: beside everything else, few at once, each for a limited time."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from exo.errors import Rejected

AT_ONCE = 2
"""Compiles; most take milliseconds."""
COMPILE_MOST = 10.0
"""Seconds that one may take, and that it may wait for its turn."""

T = TypeVar("T")


class CompileThreads:
    """A thread for each compile. Belongs to one event loop.

    Nothing can stop a compile: one that overruns is given up, but keeps its place until it ends. So it takes no more
    of the machine than its share, and nothing else runs in these threads. They do not keep the process from exiting.
    """

    __slots__ = ("_free", "_patience")

    def __init__(self, at_once: int = AT_ONCE, patience: float = COMPILE_MOST) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._patience = patience

    async def run(self, work: Callable[[], T], param: str) -> T:
        """What `work` returns or raises. Raises Rejected, about the API's parameter `param`, where it takes too long:
        `invalid_response_format`; where others do, so that its turn does not come: `unavailable`."""
        await self._turn(param)
        running = asyncio.wrap_future(started(work, "compile"))
        running.add_done_callback(lambda _: self._free.release())
        try:
            return await asyncio.wait_for(asyncio.shield(running), self._patience)
        except TimeoutError as error:
            raise Rejected(
                f"{param}: this is too complex: it was not ready after {self._patience:g} s",
                code="invalid_response_format",
                param=param,
            ) from error

    async def _turn(self, param: str) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError as error:
            raise Rejected(
                f"{param}: formats of other requests are being compiled, which takes long: try again later",
                code="unavailable",
                param=param,
            ) from error


def started(work: Callable[[], T], name: str) -> Future[T]:
    """What `work` returns or raises, once it has; it runs already, in a thread of its own with this name."""
    future = Future[T]()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_run, args=(work, future), name=name, daemon=True).start()
    return future


def _run(work: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
