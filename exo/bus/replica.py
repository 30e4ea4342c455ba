"""A copy of State that follows the log: asked of a master once, then folded from EVENTS."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

from exo.bus.client import Bus
from exo.bus.events import follow
from exo.bus.queries import ask_state
from exo.domain.fold import OutOfOrder, fold
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Retryable
from exo.process import end

logger = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds after which a process that still waits for a master says so."""

Listener = Callable[[State, Recorded | None], None]
"""Called after each event with the new State; with None when State was taken from a master anew."""


class Replica:
    """State as of the last event seen. `state.position` is 0 until a master has answered."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.state = State()
        self.is_live = False
        """Whether a master has answered and events are being followed."""
        self._listeners: list[Listener] = []
        self._changed = asyncio.Condition()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called on each change; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_for(self, condition: Callable[[State], bool], timeout: float | None) -> bool:
        """Whether State came to fulfil a condition within `timeout`, seconds; None waits without end."""
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self.is_live and condition(self.state))
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Follow the log without end."""
        while True:
            await self._take(await self._ask(), None)
            try:
                async with aclosing(follow(self._bus, self.state.position)) as batches:
                    async for batch in batches:
                        for recorded in batch:
                            await self._take(fold(self.state, recorded), recorded)
            except OutOfOrder as error:
                # The stream was cut or made anew while nobody looked: a master knows the truth.
                logger.warning("following the log: %s; asking a master again", error)

    async def _ask(self) -> State:
        while True:
            try:
                return await ask_state(self._bus, PATIENCE)
            except Retryable as error:
                logger.info("waiting for a master: %s", error)

    async def _take(self, state: State, recorded: Recorded | None) -> None:
        self.state = state
        self.is_live = True
        for listener in list(self._listeners):
            listener(state, recorded)
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def following(bus: Bus) -> AsyncGenerator[Replica]:
    """A replica that follows the log for as long as the block runs. Where it cannot, the block is ended with why."""
    replica = Replica(bus)
    block = asyncio.current_task()
    task = asyncio.create_task(replica.run())

    def end_block(following: asyncio.Task[None]) -> None:
        if block is not None and not following.cancelled():
            block.cancel()

    task.add_done_callback(end_block)
    try:
        yield replica
    finally:
        await end(task)
