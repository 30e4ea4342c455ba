"""The store on a real file."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from log_events import FIRST_GENERATION, history

from exo.domain.fold import OutOfOrder
from exo.domain.ids import MessageId
from exo.errors import Fatal
from exo.log import connections
from exo.log.codec import GENESIS
from exo.log.connections import DiskFull
from exo.log.store import LogStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a folder?" / "log" / "exo.sqlite3"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[LogStore]:
    store = await LogStore.open(path)
    yield store
    await store.close()


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


async def test_an_empty_log_is_at_position_zero(store: LogStore) -> None:
    assert (store.position, store.chain) == (0, GENESIS)
    assert await store.read(0) == []


async def test_what_was_appended_is_read_back_after_a_restart(store: LogStore, path: Path) -> None:
    events = history(40)
    await store.append(events[:1])
    await store.append([])
    await store.append(events[1:])
    again = await LogStore.open(path)
    assert await again.read(0) == events
    assert (again.position, again.chain) == (40, store.chain)
    await again.close()


async def test_reading_goes_by_the_page_and_keeps_within_bounds(store: LogStore) -> None:
    events = history(2500)
    await store.append(events)
    assert await store.read(10, 5) == events[10:15]
    assert await store.read(2500) == []
    assert [recorded async for recorded in store.stream()] == events
    assert [recorded async for recorded in store.stream(1, 2001)] == events[1:2001]
    assert [recorded async for recorded in store.stream(5, 5)] == []
    assert await store.last(3) == events[-3:]
    assert [one.position for one in await store.last(2, "NodeJoined")] == [2]


@pytest.mark.parametrize("positions", [[2, 3], [1, 3], [1, 1], [0, 1]])
async def test_events_that_do_not_follow_are_refused_in_whole(store: LogStore, positions: list[int]) -> None:
    events = {one.position: one for one in history(3)} | {0: history(1)[0].model_copy(update={"position": 0})}
    with pytest.raises(OutOfOrder):
        await store.append([events[position] for position in positions])
    assert store.position == await store.refresh() == 0


async def test_the_inbox_has_each_message_at_its_first_event(store: LogStore) -> None:
    events = history(8)
    await store.append(events[:FIRST_GENERATION])
    await store.append(events[FIRST_GENERATION:])
    asked = [MessageId(name) for name in ("start-0", "end-0", "join", "unheard-of")]
    assert await store.seen(asked) == {"start-0": 6, "end-0": 8, "join": 2}
    assert await store.seen([]) == {}
    assert await store.caused_by(MessageId("start-0")) == events[5:7]


async def test_a_generation_has_one_row_with_its_figures(store: LogStore, path: Path) -> None:
    events = history(8)
    await store.append(events[:7])
    await store.close()
    again = await LogStore.open(path)
    await again.append(events[7:])
    await again.close()
    dispatched, ended = (one.entry.recorded_at for one in events[6:])
    assert query(path, "SELECT * FROM generations") == [
        (
            *("task-0", "maker/model", "anna"),
            *(dispatched - 0.125, dispatched, ended),
            *("stop", 7, 5, 2),
            *(0.125 + 0.5, 0.0, 0.25),
            *("", ""),
        )
    ]


async def test_a_full_disk_is_said_and_nothing_is_half_written(store: LogStore) -> None:
    await store.append(history(10))
    connection = store._connection
    assert connection is not None
    pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
    await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
    await connection.rollback()
    chain = store.chain
    with pytest.raises(DiskFull, match="is full: free some space"):
        await store.append(history(1000, after=10))
    assert (store.position, store.chain) == (10, chain)
    assert await store.refresh() == 10
    assert await store.seen([MessageId("start-3")]) == {}

    await connection.exec_driver_sql("PRAGMA max_page_count = 100000")
    await connection.rollback()
    await store.append(history(1000, after=10))
    assert await store.refresh() == 1010


async def test_another_masters_rows_are_taken_as_they_are(store: LogStore, tmp_path: Path) -> None:
    await store.append(history(30))
    other = await LogStore.open(tmp_path / "other.sqlite3", durable=False)
    try:
        assert await other.append_rows(await store.rows(0, 20)) == history(20)
        with pytest.raises(Fatal, match=r"position 21 .* does not follow"):
            await other.append_rows(await store.rows(21))
        changed = [row._replace(source="somebody") for row in await store.rows(20)]
        with pytest.raises(Fatal, match=r"position 21 .* does not follow"):
            await other.append_rows(changed)
        await other.append_rows(await store.rows(20))
        assert (other.position, other.chain) == (30, store.chain)
        assert await other.rows(0) == await store.rows(0)
        assert await other.seen([MessageId("start-3")]) == await store.seen([MessageId("start-3")])
    finally:
        await other.close()


async def test_a_second_writer_is_noticed(store: LogStore, path: Path) -> None:
    other = await LogStore.open(path)
    await other.append(history(1))
    with pytest.raises(Fatal, match="is a second master running with this home"):
        await store.append(history(1))
    await other.close()


async def test_a_transaction_that_writes_holds_the_lock_from_its_beginning(store: LogStore, path: Path) -> None:
    engine = connections.writer(path, durable=True)
    async with engine.begin():
        with (
            closing(sqlite3.connect(path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
    await engine.dispose()


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
async def test_durable_flushes_at_every_commit(path: Path, durable: bool, synchronous: int) -> None:
    store = await LogStore.open(path, durable=durable)
    assert store._connection is not None
    assert (await store._connection.exec_driver_sql("PRAGMA synchronous")).scalar() == synchronous
    assert (await store._connection.exec_driver_sql("PRAGMA journal_mode")).scalar() == "wal"
    await store.close()


async def test_a_reader_sees_whole_batches_while_they_are_appended(store: LogStore, path: Path) -> None:
    reader = await LogStore.open(path, read_only=True)
    sizes: set[int] = set()

    async def follow() -> None:
        read = 0
        while read < 1000:
            page = await reader.read(read, 1000)
            sizes.add(len(page) % 50)
            read += len(page)

    following = asyncio.create_task(follow())
    for after in range(0, 1000, 50):
        await store.append(history(50, after=after))
    await asyncio.wait_for(following, 20)
    assert sizes == {0}
    assert await reader.refresh() == 1000
    await reader.close()


async def test_two_appends_at_once_are_made_one_after_the_other(store: LogStore) -> None:
    events = history(20)
    await asyncio.gather(store.append(events[:10]), store.append(events[10:]))
    assert await store.read(0) == events


async def test_a_cancelled_append_is_made_in_whole(store: LogStore) -> None:
    append = asyncio.create_task(store.append(history(200)))
    await asyncio.sleep(0)
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    assert store.position == 200
    assert await store.refresh() == 200


async def test_a_position_is_found_by_time(store: LogStore) -> None:
    events = history(10)
    await store.append(events)
    assert await store.position_at(events[4].entry.recorded_at) == 5
    assert await store.position_at(events[4].entry.recorded_at + 0.01) == 5
    assert await store.position_at(0.0) == 0


async def test_reading_only_never_makes_or_changes_a_file(path: Path, tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="there is no event log at"):
        await LogStore.open(path, read_only=True)
    assert not path.parent.exists()
    await (await LogStore.open(path)).close()
    reader = await LogStore.open(path, read_only=True)
    with pytest.raises(Fatal, match="for reading only"):
        await reader.append(history(1))
    await reader.close()


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_file_that_is_no_database_is_refused(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "exo.sqlite3"
    path.write_text("not a database " * 100)
    with pytest.raises(Fatal, match="this is no SQLite file"):
        await LogStore.open(path, read_only=read_only)
    assert path.read_text().startswith("not a database")


async def test_a_folder_that_cannot_be_made_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Fatal, match="the event log"):
        await LogStore.open(tmp_path / "file" / "log" / "exo.sqlite3")
