"""Bringing the stream and the log to agreement, whichever of them lost something."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from log_events import history

from exo.bus.client import Bus
from exo.bus.events import append, begin_at, bounds, entry_at, follow
from exo.bus.streams import EVENTS, ensure_streams
from exo.domain.fold import fold
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Fatal
from exo.log.store import LogStore
from exo.master.reconcile import REPUBLISHED, reconcile

if TYPE_CHECKING:
    from conftest import Until


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LogStore]:
    store = await LogStore.open(tmp_path / "log" / "exo.sqlite3", durable=False)
    yield store
    await store.close()


def state_after(recorded: Sequence[Recorded]) -> State:
    state = State()
    for one in recorded:
        state = fold(state, one)
    return state


async def stream(bus: Bus, recorded: Sequence[Recorded], after: int = 0) -> None:
    await append(bus, [[one.entry] for one in recorded], after)


def altered(recorded: Recorded) -> Recorded:
    return recorded.model_copy(update={"entry": recorded.entry.model_copy(update={"source": "somebody else"})})


async def agree(bus: Bus, store: LogStore, wanted: Sequence[Recorded]) -> None:
    """Both hold these events, the stream at least the last thousand."""
    assert await store.read(0, len(wanted) + 1) == wanted
    first, last = await bounds(bus)
    assert last == len(wanted)
    for position in (first, last):
        assert await entry_at(bus, position) == wanted[position - 1].entry


async def test_a_new_cluster_has_nothing_to_agree_on(bus: Bus, store: LogStore) -> None:
    assert await reconcile(bus, store, State()) == State()
    assert await bounds(bus) == (1, 0)


async def test_where_both_agree_nothing_changes(bus: Bus, store: LogStore) -> None:
    wanted = history(20)
    await stream(bus, wanted)
    await store.append(wanted)
    assert await reconcile(bus, store, state_after(wanted)) == state_after(wanted)
    await agree(bus, store, wanted)


@pytest.mark.parametrize("kept", [0, 1, 12, 19])
async def test_the_log_gets_what_only_the_stream_holds(bus: Bus, store: LogStore, kept: int) -> None:
    wanted = history(20)
    await stream(bus, wanted)
    await store.append(wanted[:kept])
    assert await reconcile(bus, store, state_after(wanted[:kept])) == state_after(wanted)
    await agree(bus, store, wanted)


async def test_a_log_that_is_thousands_behind_catches_up(bus: Bus, store: LogStore) -> None:
    wanted = history(2500)
    await stream(bus, wanted)
    assert await reconcile(bus, store, State()) == state_after(wanted)
    await agree(bus, store, wanted)


@pytest.mark.parametrize("streamed", [1, 12, 19])
async def test_a_stream_that_lost_its_tail_gets_it_back(bus: Bus, store: LogStore, streamed: int) -> None:
    wanted = history(20)
    await stream(bus, wanted[:streamed])
    await store.append(wanted)
    assert await reconcile(bus, store, state_after(wanted)) == state_after(wanted)
    await agree(bus, store, wanted)
    assert (await bounds(bus))[0] == 1


async def test_a_stream_that_was_deleted_gets_everything_back(bus: Bus, store: LogStore) -> None:
    wanted = history(20)
    await stream(bus, wanted)
    await store.append(wanted)
    await bus.js.delete_stream(EVENTS)
    await ensure_streams(bus.js, bus.subjects)
    assert await reconcile(bus, store, state_after(wanted)) == state_after(wanted)
    await agree(bus, store, wanted)
    assert await bounds(bus) == (1, 20)


async def test_an_empty_stream_gets_the_end_of_a_long_log_at_its_old_positions(bus: Bus, store: LogStore) -> None:
    wanted = history(2500)
    await store.append(wanted)
    assert await reconcile(bus, store, state_after(wanted)) == state_after(wanted)
    await agree(bus, store, wanted)
    assert await bounds(bus) == (2500 - REPUBLISHED + 1, 2500)


async def test_a_stream_that_was_emptied_but_remembers_where_it_was_goes_on_there(bus: Bus, store: LogStore) -> None:
    wanted = history(20)
    await stream(bus, wanted[:12])
    await bus.js.purge_stream(EVENTS)
    await store.append(wanted)
    await reconcile(bus, store, state_after(wanted))
    assert await bounds(bus) == (13, 20)
    await agree(bus, store, wanted)


@pytest.mark.parametrize(
    ("streamed", "kept", "parted"),
    [(12, 20, 12), (20, 12, 12), (12, 12, 12), (1, 20, 1), (20, 20, 1), (20, 17, 7), (900, 800, 333)],
)
async def test_different_events_at_one_position_are_refused_with_the_first_position(
    bus: Bus, store: LogStore, streamed: int, kept: int, parted: int
) -> None:
    wanted = history(max(streamed, kept))
    await stream(bus, [altered(one) if one.position >= parted else one for one in wanted[:streamed]])
    await store.append(wanted[:kept])
    with pytest.raises(Fatal, match=rf"different events from position {parted} on:"):
        await reconcile(bus, store, state_after(wanted[:kept]))
    assert await bounds(bus) == (1, streamed)
    assert store.position == kept


async def test_events_that_neither_holds_are_missed_with_the_positions(bus: Bus, store: LogStore) -> None:
    await begin_at(bus, 16)
    await stream(bus, history(5, after=15), after=15)
    await store.append(history(10))
    with pytest.raises(Fatal, match=r"ends at 10, the stream EVENTS begins at 16"):
        await reconcile(bus, store, state_after(history(10)))


async def test_a_reader_beyond_the_end_of_a_stream_that_lost_its_tail_goes_on_with_what_is_new(
    bus: Bus, store: LogStore, until: "Until"
) -> None:
    wanted = history(24)
    await stream(bus, wanted[:20])
    await store.append(wanted[:20])
    seen: list[Recorded] = []

    async def read() -> None:
        async with aclosing(follow(bus, 20)) as batches:
            async for batch in batches:
                seen.extend(batch)

    reading = asyncio.create_task(read())
    await bus.js.delete_stream(EVENTS)
    await ensure_streams(bus.js, bus.subjects)
    await stream(bus, wanted[:12])
    await reconcile(bus, store, state_after(wanted[:20]))
    await stream(bus, wanted[20:], after=20)
    await until(lambda: len(seen) == 4, "the new events")
    assert seen == wanted[20:]
    reading.cancel()


async def test_a_state_that_lags_behind_the_log_is_folded_first(bus: Bus, store: LogStore) -> None:
    wanted = history(20)
    await stream(bus, wanted)
    await store.append(wanted[:15])
    assert await reconcile(bus, store, state_after(wanted[:5])) == state_after(wanted)
