"""State from the log's file, and how far that has come."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from log_events import history

from exo.domain.fold import OutOfOrder, fold
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.log.reading import PAGE
from exo.log.replay import load_state
from exo.log.store import LogStore


def folded(events: list[Recorded]) -> State:
    state = State()
    for recorded in events:
        state = fold(state, recorded)
    return state


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log of two and a half pages, with a snapshot after one and a half."""
    path, events = tmp_path / "exo.sqlite3", history(PAGE * 5 // 2)
    store = await LogStore.open(path)
    await store.append(events)
    await store.write_snapshot(folded(events[: PAGE * 3 // 2]))
    await store.close()
    return path


@pytest.mark.parametrize("use_snapshot", [True, False])
@pytest.mark.parametrize("upto", [None, 0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, PAGE * 5 // 2])
async def test_state_at_any_position_is_the_fold_up_to_it(path: Path, upto: int | None, use_snapshot: bool) -> None:
    store = await LogStore.open(path, read_only=True)
    state = await load_state(store, upto, use_snapshot=use_snapshot)
    assert state == folded(history(PAGE * 5 // 2)[:upto])
    await store.close()


async def test_a_replay_says_how_far_it_is_after_each_page(path: Path) -> None:
    store = await LogStore.open(path, read_only=True)
    whole, rest = list[tuple[int, int]](), list[tuple[int, int]]()
    await load_state(store, 2 * PAGE, use_snapshot=False, on_progress=lambda at, end: whole.append((at, end)))
    await load_state(store, on_progress=lambda at, end: rest.append((at, end)))
    assert whole == [(PAGE, 2 * PAGE), (2 * PAGE, 2 * PAGE)]
    assert rest == [(PAGE * 5 // 2, PAGE * 5 // 2)]
    await store.close()


async def test_a_gap_stops_a_replay_unless_it_lies_behind_its_end(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM events WHERE position = ?", (PAGE + 5,))
    store = await LogStore.open(path, read_only=True)
    assert (await load_state(store, PAGE + 4, use_snapshot=False)).position == PAGE + 4
    with pytest.raises(OutOfOrder) as refused:
        await load_state(store, use_snapshot=False)
    assert (refused.value.expected, refused.value.got) == (PAGE + 5, PAGE + 6)
    await store.close()
