"""Starting on a log that was damaged: it recovers, or refuses with the exact position; never with half a State."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from log_events import FIRST_GENERATION, history

from exo.domain.fold import fold
from exo.domain.state import State
from exo.errors import Fatal
from exo.log import codec
from exo.log.damage import LogDamaged
from exo.log.replay import load_state
from exo.log.starting import load_checked
from exo.log.store import LogStore
from exo.log.verify import verify

LENGTH, SNAPSHOT = 1500, 1200


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log with a snapshot at 1200, all of it in one file."""
    path = tmp_path / "exo.sqlite3"
    await write(path, LENGTH)
    return path


async def write(path: Path, length: int, snapshot: int = SNAPSHOT) -> None:
    store = await LogStore.open(path)
    await store.append(history(snapshot))
    await store.write_snapshot(await load_state(store))
    await store.append(history(length - snapshot, after=snapshot))
    await store.close()


def change(path: Path, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount > 0


def overwrite_page(path: Path, table: str) -> None:
    """Puts garbage where a table's first page is."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def cut(path: Path, part: float) -> tuple[int, int]:
    """Shortens a file to a part of it. The bytes that are there then, and that there were."""
    whole = path.stat().st_size
    os.truncate(path, int(whole * part))
    return int(whole * part), whole


def state_after(length: int) -> State:
    state = State()
    for recorded in history(length):
        state = fold(state, recorded)
    return state


async def started(path: Path) -> State:
    """State as a master that starts has it."""
    store = await LogStore.open(path)
    try:
        return await load_checked(store)
    finally:
        await store.close()


async def refusal(path: Path) -> LogDamaged:
    with pytest.raises(LogDamaged) as refused:
        await started(path)
    assert f"is damaged at position {refused.value.position}: " in str(refused.value)
    assert "Put a sound copy of the file in its place" in str(refused.value)
    return refused.value


async def problems(path: Path) -> list[tuple[int, str]]:
    store = await LogStore.open(path, read_only=True)
    try:
        return [(problem.position, problem.text) for problem in (await verify(store)).problems]
    finally:
        await store.close()


async def test_a_sound_log_starts_from_its_snapshot_and_without_one(path: Path) -> None:
    assert await started(path) == state_after(LENGTH)
    change(path, "DELETE FROM snapshots")
    assert await started(path) == state_after(LENGTH)


@pytest.mark.parametrize("length", [0, 1, 2, 3])
async def test_a_short_log_starts(tmp_path: Path, length: int) -> None:
    await write(tmp_path / "exo.sqlite3", length, snapshot=length)
    assert await started(tmp_path / "exo.sqlite3") == state_after(length)
    assert await problems(tmp_path / "exo.sqlite3") == []


@pytest.mark.parametrize("position", [SNAPSHOT, SNAPSHOT + 1, 1404, LENGTH])
@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("body = substr(body, 1, 20)", "the row .*is damaged: "),
        ("body = X'00FF00'", "the row .*is damaged: "),
        ("body = ''", "the row .*is damaged: "),
        ("body = replace(body, '\"version\"', ' \"version\"')", "its chain does not follow"),
        ("source = 'somebody else'", "its chain does not follow"),
        ("recorded_at = recorded_at + 0.001", "its chain does not follow"),
        ("chain = 'x'", "its chain does not follow"),
        ("chain = X'FF'", "its chain does not follow"),
    ],
)
async def test_a_changed_row_is_refused_at_its_position(path: Path, position: int, sql: str, why: str) -> None:
    change(path, f"UPDATE events SET {sql} WHERE position = ?", position)
    refused = await refusal(path)
    assert refused.position == position
    assert refused.__class__ is LogDamaged
    with pytest.raises(LogDamaged, match=why):
        await started(path)


async def test_a_changed_row_that_no_snapshot_covers_is_refused_in_a_full_replay(path: Path) -> None:
    change(path, "UPDATE events SET body = replace(body, 'anna', 'otto') WHERE position = 6")
    change(path, "DELETE FROM snapshots")
    assert (await refusal(path)).position == 6


async def test_what_a_snapshot_covers_is_left_to_verify(path: Path) -> None:
    change(path, "UPDATE events SET body = replace(body, 'anna', 'otto') WHERE position = 6")
    assert await started(path) == state_after(LENGTH)
    assert (6, "the row was changed, or the one before it: its chain does not follow") in await problems(path)


@pytest.mark.parametrize("position", [1199, SNAPSHOT, SNAPSHOT + 1, 1404, LENGTH - 1])
async def test_a_gap_is_refused_at_its_position(path: Path, position: int) -> None:
    change(path, "DELETE FROM events WHERE position = ?", position)
    refused = await refusal(path)
    assert refused.position == position
    assert "the event is missing" in str(refused)


@pytest.mark.parametrize(("event_type", "version"), [("GenerationDreamt", 1), ("GenerationQueued", 3)])
async def test_an_event_that_a_newer_version_wrote_is_no_damage(path: Path, event_type: str, version: int) -> None:
    store = await LogStore.open(path)
    (row,) = await store.rows(LENGTH - 1, 1)
    chain = store.chain
    await store.close()
    body = f'{{"type":"{event_type}","version":{version},"dream":1}}'
    newer = row._replace(position=LENGTH + 1, type=event_type, version=version, body=body)
    newer = newer._replace(chain=codec.linked(chain, codec.row_digest(newer)))
    change(path, "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *newer)
    with pytest.raises(Fatal, match=rf"at position 1501 \({event_type} version {version}\) .*: upgrade exo") as refused:
        await started(path)
    assert not isinstance(refused.value, LogDamaged)


async def test_a_compacted_row_is_folded_and_checked(path: Path) -> None:
    store = await LogStore.open(path)
    row = codec.compacted((await store.rows(1402, 1))[0])
    await store.close()
    values = row.type, row.version, row.cause_id, row.source, row.body, row.position
    change(path, "UPDATE events SET type=?, version=?, cause_id=?, source=?, body=? WHERE position=?", *values)
    assert (await started(path)).position == LENGTH
    change(path, "UPDATE events SET body = ? WHERE position = ?", "0" * 64, row.position)
    assert (await refusal(path)).position == row.position


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE snapshots SET state = substr(state, 1, 100)",
        "UPDATE snapshots SET state = X'FF00', digest = X'FF'",
        "UPDATE snapshots SET state = CAST(X'7BFF7D' AS TEXT)",
        "UPDATE snapshots SET schema = 'x'",
        "UPDATE snapshots SET position = 9999",
        "DELETE FROM snapshots",
        "DROP TABLE snapshots",
    ],
)
async def test_damaged_snapshots_cost_time_and_nothing_else(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)
    assert await started(path) == state_after(LENGTH)
    store = await LogStore.open(path)
    await store.write_snapshot(await load_checked(store))
    assert (await store.latest_snapshot()) == state_after(LENGTH)
    await store.close()


@pytest.mark.parametrize("table", ["snapshots", "generations", "inbox"])
async def test_a_damaged_page_beside_the_events_is_refused_and_the_events_are_not_lost(path: Path, table: str) -> None:
    overwrite_page(path, table)
    if table != "inbox":  # which is read when a message comes again
        with pytest.raises(Fatal, match=r"all its events up to position 1500 can be read .*`exo log export`"):
            await started(path)
    assert any("cannot be" in text for _, text in await problems(path))
    store = await LogStore.open(path, read_only=True)
    assert [recorded async for recorded in store.stream()] == history(LENGTH)
    await store.close()


async def test_damaged_pages_of_the_events_are_refused_at_the_first_position_that_is_lost(path: Path) -> None:
    lost = damage_leaf_of(path, 1404)
    refused = await refusal(path)
    assert refused.position == lost
    assert any(position == lost and "cannot be read" in text for position, text in await problems(path))


def damage_leaf_of(path: Path, position: int) -> int:
    """Overwrites the page that holds an event, found by what is written there. Returns the first event of the page."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        chains = dict(connection.execute("SELECT chain, position FROM events"))
        (chain,) = (one for one, at in chains.items() if at == position)
    data = bytearray(path.read_bytes())
    page = data.index(chain.encode()) // size * size
    held = [at for one, at in chains.items() if page <= data.index(one.encode()) < page + size]
    data[page : page + size] = b"\xff" * size
    path.write_bytes(data)
    return min(held)


@pytest.mark.parametrize("part", [0.5, 0.9])
@pytest.mark.parametrize("opening", [started, problems])
async def test_a_file_that_was_cut_is_refused(
    path: Path, part: float, opening: Callable[[Path], Awaitable[object]]
) -> None:
    there, whole = cut(path, part)
    with pytest.raises(Fatal, match=f"the file is cut, {there} of {whole} bytes are there; .*put a copy"):
        await opening(path)


async def test_a_file_without_its_wal_ends_earlier_and_is_sound(tmp_path: Path) -> None:
    path, copy = tmp_path / "exo.sqlite3", tmp_path / "copy" / "exo.sqlite3"
    await write(path, LENGTH)
    store = await LogStore.open(path)
    await store.append(history(50, after=LENGTH))
    copy.parent.mkdir()
    shutil.copy(path, copy)  # as it is on disk now: what was committed since the last checkpoint is in the other file
    await store.close()
    assert await started(copy) == state_after(LENGTH)
    assert await problems(copy) == []
    store = await LogStore.open(copy)
    await store.append(history(50, after=LENGTH))
    assert await load_checked(store) == state_after(LENGTH + 50)
    await store.close()


async def test_an_older_copy_of_the_file_is_sound_and_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "exo.sqlite3"
    await write(path, LENGTH)
    older = path.read_bytes()
    store = await LogStore.open(path)
    await store.append(history(100, after=LENGTH))
    await store.close()
    path.write_bytes(older)
    assert await started(path) == state_after(LENGTH)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[LogStore]:
    store = await LogStore.open(path)
    yield store
    await store.close()


@pytest.mark.parametrize("position", [1, 2, FIRST_GENERATION, 999, SNAPSHOT, 1403, 1404, 1405, LENGTH])
async def test_a_tail_that_was_dropped_leaves_the_log_as_it_was_before(store: LogStore, position: int) -> None:
    await store.drop_tail(position)
    assert store.position == position - 1
    assert await load_checked(store) == state_after(position - 1)
    assert (await verify(store)).problems == ()
    await store.append(history(LENGTH - position + 1, after=position - 1))
    assert await load_checked(store) == state_after(LENGTH)
    assert (await verify(store)).problems == ()


async def test_a_last_row_that_is_garbage_is_dropped_and_written_again(store: LogStore, path: Path) -> None:
    chain = store.chain
    change(
        path, "UPDATE events SET body = X'FF', recorded_at = 0, type = '', source = X'00' WHERE position = ?", LENGTH
    )
    damage = await refusal(path)
    assert damage.position == LENGTH
    await store.drop_tail(damage.position)
    await store.append(history(1, after=LENGTH - 1))
    assert store.chain == chain
    assert (await verify(store)).problems == ()
    assert await asyncio.wait_for(load_checked(store), 20) == state_after(LENGTH)


async def test_nothing_is_dropped_where_what_is_left_is_damaged(store: LogStore, path: Path) -> None:
    change(path, "UPDATE events SET body = '' WHERE position = ?", LENGTH - 1)
    with pytest.raises(Fatal, match=f"at position {LENGTH - 1} "):
        await store.drop_tail(LENGTH)
    assert await store.refresh() == LENGTH
