"""One state on its way out: pieces come from the engine's thread, bytes go to the peer."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from exo.domain.ids import TaskId
from exo.runner.kv.wire import End, Failure, Frame, Piece, Waiting, written

T = TypeVar("T")

CHUNK = 1 << 20
"""Bytes that are handed to the connection at a time."""


class OutgoingOver(Exception):  # noqa: N818  (it is no fault)
    """The peer no longer takes the state. The text says how that was found."""


class Outgoing:
    """A sink for the pieces of a state. Called in the engine's thread it never waits; the rest is the event loop's.

    What the peer has not taken yet is in memory, which is the state itself at most.
    """

    def __init__(self, task_id: TaskId, loop: asyncio.AbstractEventLoop) -> None:
        self.task_id = task_id
        self._loop = loop
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._ended = False
        self._left = False

    def __call__(self, piece: Piece) -> None:
        """Sends a piece on, if anybody still waits for it."""
        if not self._left:
            self._put(piece)

    def done(self, tokens: int) -> None:
        """All pieces were given; they are the state of so many tokens."""
        self._end(End(tokens))

    def failed(self, reason: str) -> None:
        """There will be no state."""
        self._end(Failure(reason))

    def leave(self) -> bool:
        """Drops what is left of it. Whether the engine may still be computing it, the first time that it is asked."""
        goes_on = not self._ended and not self._left
        self._left = True
        self._frames = asyncio.Queue()
        return goes_on

    async def send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
        """Sends all of it, each part within `patience` seconds. Raises OutgoingOver where the peer leaves before.

        Where nothing new comes for a fourth of that time, the peer is told so: its own patience is for a dead peer, and
        not for an engine with much to do.
        """
        leaving = asyncio.create_task(_closed(reader))
        try:
            is_last = False
            while not is_last:
                frame = await _unless(leaving, self._next(patience / 4))
                await _unless(leaving, _write(frame, writer, patience))
                is_last = isinstance(frame, End | Failure)
        finally:
            leaving.cancel()

    async def _next(self, pause: float) -> Frame:
        try:
            async with asyncio.timeout(pause):
                return await self._frames.get()
        except TimeoutError:
            return Waiting()

    def _end(self, frame: End | Failure) -> None:
        if not self._ended:
            self._ended = True
            self._put(frame)

    def _put(self, frame: Frame) -> None:
        """In the order of the calls, from whichever thread: the end must not overtake a piece."""
        self._loop.call_soon_threadsafe(self._frames.put_nowait, frame)


async def _write(frame: Frame, writer: asyncio.StreamWriter, patience: float) -> None:
    try:
        for part in written(frame):
            for start in range(0, len(part), CHUNK):
                writer.write(part[start : start + CHUNK])
                async with asyncio.timeout(patience):
                    await writer.drain()
    except TimeoutError as error:
        raise OutgoingOver(f"the other runner took nothing for {patience:g} s") from error
    except OSError as error:
        raise OutgoingOver("the other runner left") from error


async def _closed(reader: asyncio.StreamReader) -> None:
    """Returns when the peer leaves, or says what it has no reason to say."""
    try:
        await reader.read(1)
    except OSError:
        return


async def _unless(leaving: asyncio.Task[None], work: Coroutine[None, None, T]) -> T:
    """What `work` gives. Raises OutgoingOver where the peer leaves first."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise OutgoingOver("the other runner left")
        return task.result()
    finally:
        task.cancel()
