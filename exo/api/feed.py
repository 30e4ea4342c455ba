"""The event log for those who follow it over HTTP: its end from memory, what is older from a master's log.

However many read and however slowly, each holds at most one page, and none a transaction or a consumer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator

from exo.bus.client import Bus
from exo.bus.queries import ask_events
from exo.bus.replica import Replica
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Retryable

logger = logging.getLogger(__name__)

RECENT = 1000
"""Events kept in memory: a reader that is at most so far behind costs nobody a question."""
PATIENCE = 5.0
"""Seconds for a master to answer; a reader who waits longer is only not told anything yet."""
PAUSE = 0.5
"""Seconds before a master is asked again."""


class Feed:
    """Follows what this process' copy of State follows."""

    def __init__(self, bus: Bus, replica: Replica) -> None:
        self._bus = bus
        self._replica = replica
        self._recent: deque[Recorded] = deque(maxlen=RECENT)
        self._one_at_a_time = asyncio.Lock()
        """Pages of the log: reading many at once would hold up the answers of models."""
        replica.listen(self._listen)

    async def after(self, position: int) -> AsyncGenerator[list[Recorded]]:
        """Every event after a position, now and later, in order, in lists of those that are there already."""
        while True:
            await self._beyond(position)
            page = self._from_memory(position) or await self._from_log(position)
            if page:
                position = page[-1].position
                yield page

    def _listen(self, _state: State, recorded: Recorded | None) -> None:
        if recorded is None:
            self._recent.clear()
        else:
            self._recent.append(recorded)

    async def _beyond(self, position: int) -> None:
        await self._replica.wait_for(lambda state: state.position > position, None)

    def _from_memory(self, after: int) -> list[Recorded]:
        """What came after a position; nothing where a part of it is no longer in memory."""
        found: list[Recorded] = []
        for recorded in reversed(self._recent):
            if recorded.position <= after:
                break
            found.append(recorded)
        return found[::-1] if found and found[-1].position == after + 1 else []

    async def _from_log(self, after: int) -> list[Recorded]:
        try:
            async with self._one_at_a_time:
                return await ask_events(self._bus, after, PATIENCE)
        except Retryable as error:
            logger.info("events after %d: %s", after, error)
            await asyncio.sleep(PAUSE)
            return []
