"""Brings the stream EVENTS and the log in SQLite to agreement. JetStream is the transport, SQLite the truth."""

import logging
from contextlib import aclosing

from exo.bus import events
from exo.bus.client import Bus
from exo.bus.queries import ask_furthest
from exo.domain.fold import fold
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Fatal
from exo.log import codec
from exo.log.store import LogStore
from exo.master.history import Missing, catch_up

logger = logging.getLogger(__name__)

OTHERS_WAIT = 0.5
"""Seconds for the other masters to say how far their logs go."""
REPUBLISHED = 1000
"""Events that a stream that lost everything gets back; whoever needs older ones finds them in SQLite."""


async def reconcile(bus: Bus, store: LogStore, state: State) -> State:
    """The State after both hold the same events.

    Copies what SQLite lacks, publishes again what JetStream lost. Raises Fatal, naming the position, where they hold
    different events or where events between them are missing, and Retryable where NATS stays away.
    """
    state = await caught_up(store, state)
    first, last = await events.bounds(bus)
    if last == 0 or last < store.position:
        # The stream lost something, or is new: then only the masters know how far their common history went.
        state = await catch_up(bus, store, state, await ask_furthest(bus, OTHERS_WAIT))
    common = min(last, store.position)
    if first <= common:
        await check(bus, store, first, common)
    if last < store.position:
        await _republish(bus, store, last)
    elif first > store.position + 1:
        try:
            state = await catch_up(bus, store, state, first - 1)
        except Missing as error:
            raise Fatal(str(error)) from error
    return await copy(bus, store, state, last)


async def caught_up(store: LogStore, state: State) -> State:
    """The State after what was recorded just before a lead, or following, was cut short."""
    async for recorded in store.stream(state.position):
        state = fold(state, recorded)
    return state


async def copy(bus: Bus, store: LogStore, state: State, upto: int) -> State:
    """The State after SQLite holds every event of the stream up to a position."""
    if state.position >= upto:
        return state
    if upto - state.position > 1:
        logger.info("taking %d events from the stream EVENTS", upto - state.position)
    async with aclosing(events.follow(bus, state.position)) as batches:
        async for batch in batches:
            wanted = [recorded for recorded in batch if recorded.position <= upto]
            await store.append(wanted)
            for recorded in wanted:
                state = fold(state, recorded)
            if state.position >= upto:
                break
    return state


async def check(bus: Bus, store: LogStore, first: int, last: int) -> None:
    """Raises Fatal with the first position at which both hold something, and not the same."""
    if await _same(bus, store, last):
        return
    # Two histories that part never come together again: halving finds where, in a handful of questions.
    while first < last:
        middle = (first + last) // 2
        if await _same(bus, store, middle):
            first = middle + 1
        else:
            last = middle
    raise Fatal(
        f"the log {store.path} and the stream EVENTS hold different events from position {last} on: they belong to two "
        "clusters, or one was restored from an old copy. Look at both with `exo log show` and `nats stream get`, and "
        "move the wrong one away: the log file, or the folder `nats` that the server keeps its streams in"
    )


async def _same(bus: Bus, store: LogStore, position: int) -> bool:
    streamed = await events.entry_at(bus, position)
    rows = await store.rows(position - 1, 1)
    return streamed is None or not rows or codec.holds(rows[0], Recorded(position=position, entry=streamed))


async def _republish(bus: Bus, store: LogStore, last: int) -> None:
    logger.warning("the stream EVENTS ends at %d, the log at %d: publishing what is missing", last, store.position)
    if last == 0:
        last = max(0, store.position - REPUBLISHED)
        await events.begin_at(bus, last + 1)
    while page := await store.read(last, events.BATCH_MOST):
        await events.append(bus, [[recorded.entry] for recorded in page], last)
        last = page[-1].position
