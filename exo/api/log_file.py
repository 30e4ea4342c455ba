"""The event log of this node, read by its API: read-only, on a thread of its own, in short transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from exo.errors import Fatal, Retryable
from exo.log.store import LogStore

T = TypeVar("T")

READERS_MOST = 4
"""Questions about the log that are answered at a time; more wait."""

_threads = ThreadPoolExecutor(READERS_MOST, "log")


async def read_log(path: Path, work: Callable[[LogStore], Awaitable[T]]) -> T:
    """What `work` gives on the log at `path`, opened for it.

    On a thread, with an event loop there: decoding and folding many events would hold up the tokens that stream
    through this process' own loop. Cancelled, it ends the work at the next page. Raises Retryable, with what to do,
    where there is no log here or it cannot be read.
    """
    job = _Job(path, work)
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads, job.run)
    except asyncio.CancelledError:
        job.cancel()
        raise
    except Fatal as error:
        raise Retryable(str(error)) from error


class _Job(Generic[T]):
    """One piece of work on a thread, which can be ended from another."""

    def __init__(self, path: Path, work: Callable[[LogStore], Awaitable[T]]) -> None:
        self._path = path
        self._work = work
        self._lock = Lock()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[T]] | None = None
        self._cancelled = False

    def run(self) -> T:
        """Do it. Blocks."""
        if not self._path.is_file():
            raise Fatal(
                f"this API's node has no event log ({self._path}): start `exo master` with the same EXO_HOME, or ask "
                "the API of a node where a master runs"
            )
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(self._opened())
            with self._lock:
                self._running = loop, task
                if self._cancelled:
                    task.cancel()
            try:
                return loop.run_until_complete(task)
            finally:
                with self._lock:
                    self._running = None

    def cancel(self) -> None:
        """End it soon, wherever it is."""
        with self._lock:
            self._cancelled = True
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    async def _opened(self) -> T:
        store = await LogStore.open(self._path, read_only=True)
        try:
            return await self._work(store)
        finally:
            await store.close()
