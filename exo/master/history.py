"""The past, from one master's log to whoever asks, and into this one's where it lacks some."""

import logging
from collections.abc import Sequence

from pydantic import TypeAdapter

from exo.bus.client import Bus
from exo.bus.queries import ask_rows
from exo.domain.fold import fold
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Retryable
from exo.log import codec
from exo.log.codec import StoredEvent
from exo.log.reading import LogReader
from exo.log.store import LogStore

logger = logging.getLogger(__name__)

PAGE = 500
PAGE_BYTES = 4 * 2**20
"""A page ends before it has more rows, or bodies of more bytes."""
PATIENCE = 5.0
"""Seconds for another master to answer."""

_rows = TypeAdapter(list[StoredEvent])


async def events_page(store: LogReader, after: int) -> list[Recorded]:
    """The next events of a log; none where it ends."""
    return codec.decode(await rows_page(store, after))


async def rows_page(store: LogReader, after: int) -> list[StoredEvent]:
    """The next rows of a log; none where it ends."""
    return _fitting(await store.rows(after, PAGE))


async def rows_answer(store: LogReader, after: int) -> bytes | None:
    """The next rows as they travel; None where the log ends, or is damaged there: then another master may answer."""
    before = await store.rows(after - 1, 1) if after else []
    chain = before[0].chain if before else codec.GENESIS
    rows = await rows_page(store, after)
    for row in rows:
        if not codec.follows(row, chain):
            logger.error("the log %s is damaged at position %d; it is not passed on", store.path, row.position)
            return None
        chain = row.chain
    return _rows.dump_json(rows) if rows else None


async def catch_up(bus: Bus, store: LogStore, state: State, upto: int) -> State:
    """The State after this log has every event up to a position, taken from another master's log as it keeps them.

    Raises Missing where no master has them now, and Fatal where what it has does not follow on this log.
    """
    while store.position < upto:
        answer = await ask_rows(bus, store.position, PATIENCE)
        if answer is None:
            raise Missing(store, upto + 1)
        rows = [row for row in _rows.validate_json(answer) if row.position <= upto]
        for recorded in await store.append_rows(rows):
            state = fold(state, recorded)
    return state


class Missing(Retryable):
    """A log lacks what comes before `first`, where the stream begins, and nobody has it now."""

    def __init__(self, store: LogReader, first: int) -> None:
        super().__init__(
            f"the log {store.path} ends at {store.position}, the stream EVENTS begins at {first}, and no other master "
            "has the events between: start a master that has them, or put a copy of its log into this home"
        )


def _fitting(rows: Sequence[StoredEvent]) -> list[StoredEvent]:
    size, fitting = 0, list[StoredEvent]()
    for row in rows:
        size += len(row.body)
        if fitting and size > PAGE_BYTES:
            break
        fitting.append(row)
    return fitting
