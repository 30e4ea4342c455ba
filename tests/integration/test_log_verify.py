"""Damage done to a real file is found, at its position."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from log_events import history

from exo.domain.fold import fold
from exo.domain.messages.events import Entry, GenerationQueued, InstanceDeleted, NodeLost, Recorded
from exo.domain.state import State
from exo.errors import Fatal
from exo.log import codec
from exo.log.replay import load_state, state_digest
from exo.log.snapshots import SNAPSHOTS_KEPT
from exo.log.store import LogStore
from exo.log.verify import Verification, verify

LENGTH = 1500
"""More than a page, so that damage also lies on a later one."""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log with a snapshot at 1200."""
    path = tmp_path / "exo.sqlite3"
    store = await LogStore.open(path)
    await store.append(history(1200))
    await store.write_snapshot(await load_state(store))
    await store.append(history(LENGTH - 1200, after=1200))
    await store.close()
    return path


def change(path: Path, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount > 0


async def check(path: Path) -> Verification:
    store = await LogStore.open(path, read_only=True)
    try:
        return await verify(store)
    finally:
        await store.close()


async def found(path: Path) -> list[str]:
    return [str(problem) for problem in (await check(path)).problems]


async def snapshot_position(path: Path) -> int | None:
    store = await LogStore.open(path, read_only=True)
    try:
        state = await store.latest_snapshot()
        full = await load_state(store, use_snapshot=False)
        assert (await load_state(store)).model_dump_json() == full.model_dump_json()
        return state.position if state else None
    finally:
        await store.close()


async def test_a_sound_log_has_no_problems(path: Path) -> None:
    state = State()
    for recorded in history(LENGTH):
        state = fold(state, recorded)
    assert await check(path) == Verification(LENGTH, LENGTH, state_digest(state), ())


async def test_progress_reaches_the_end(path: Path) -> None:
    store = await LogStore.open(path, read_only=True)
    seen: list[tuple[int, int]] = []
    await verify(store, lambda position, end: seen.append((position, end)))
    await store.close()
    assert seen == [(1000, LENGTH), (LENGTH, LENGTH)]


async def test_an_empty_log_is_sound(tmp_path: Path) -> None:
    await (await LogStore.open(tmp_path / "exo.sqlite3")).close()
    assert await check(tmp_path / "exo.sqlite3") == Verification(0, 0, state_digest(State()), ())


async def test_a_changed_body_breaks_the_chain(path: Path) -> None:
    change(path, "UPDATE events SET body = replace(body, 'anna', 'otto') WHERE position = 1206")
    problems = await found(path)
    assert "position 1206: the row was changed, or the one before it: its chain does not follow" in problems
    assert "position 1208: the table of generations differs for task-400" in problems
    assert len(problems) == 2


@pytest.mark.parametrize("column", ["recorded_at", "cause_id", "source"])
async def test_any_changed_column_breaks_the_chain(path: Path, column: str) -> None:
    change(path, f"UPDATE events SET {column} = '1700000000.5' WHERE position = 3")
    assert any(text.startswith("position 3: the row was changed") for text in await found(path))


async def test_a_changed_row_with_its_chain_made_new_shows_at_the_next(path: Path) -> None:
    store = await LogStore.open(path, read_only=True)
    before, row = await store.rows(11, 2)
    await store.close()
    body = row.body.replace("instance-a", "instance-b")
    chain = codec.linked(before.chain, codec.row_digest(row._replace(body=body)))
    change(path, "UPDATE events SET body = ?, chain = ? WHERE position = ?", body, chain, row.position)
    assert f"position {row.position + 1}: the row was changed, or the one before it" in (await found(path))[0]


@pytest.mark.parametrize(
    "body",
    ["", "{", "null", '{"type":"NodeLost","version":1}', b"\xff\xfe", '{"type":"InstanceDeleted","instance_id":"x"}'],
)
@pytest.mark.parametrize("position", [7, LENGTH])
async def test_a_body_that_is_no_event_is_named(path: Path, body: str | bytes, position: int) -> None:
    change(path, "UPDATE events SET body = ? WHERE position = ?", body, position)
    problems = await found(path)
    assert any(text.startswith(f"position {position}: ") and "is damaged" in text for text in problems)
    store = await LogStore.open(path, read_only=True)
    with pytest.raises(Fatal, match=f"the event at position {position} "):
        await load_state(store, use_snapshot=False)
    await store.close()


async def test_text_that_is_no_unicode_is_named(path: Path) -> None:
    change(path, "UPDATE events SET body = CAST(X'7BFF7D' AS TEXT) WHERE position = 1203")
    problems = (await check(path)).problems
    assert problems[0].position == 1203
    assert "Could not decode to UTF-8" in problems[0].text


@pytest.mark.parametrize(("column", "value"), [("type", "GenerationDreamt"), ("version", 2), ("version", "x")])
async def test_an_event_of_a_newer_version_is_named(path: Path, column: str, value: str | int) -> None:
    change(path, f"UPDATE events SET {column} = ? WHERE position = 1300", value)
    (problem,) = (await check(path)).problems
    assert problem.position == 1300
    store = await LogStore.open(path, read_only=True)
    with pytest.raises(Fatal, match="upgrade exo" if value != "x" else "is damaged"):
        await store.read(1290)
    await store.close()


async def test_a_deleted_row_is_named(path: Path) -> None:
    change(path, "DELETE FROM events WHERE position = 6")
    assert await found(path) == [
        "position 6: the event is missing",
        "position 6: the inbox has the message start-0 here, and no event has",
        "position 7: the inbox does not have its cause start-0 here",
    ]


async def test_a_deleted_first_row_is_named(path: Path) -> None:
    change(path, "DELETE FROM events WHERE position = 1")
    assert "position 1: the event is missing" in await found(path)


async def test_a_deleted_stretch_is_named(path: Path) -> None:
    change(path, "DELETE FROM events WHERE position BETWEEN 100 AND 1100")
    assert "position 100: the events up to position 1100 are missing" in await found(path)


async def test_a_cut_end_is_noticed(path: Path) -> None:
    change(path, "DELETE FROM events WHERE position >= 1190")
    problems = await found(path)
    assert "position 1200: there is a snapshot, and no event: the end of the log is missing" in problems
    assert any("the inbox has the message" in text for text in problems)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE snapshots SET state = replace(state, 'node-a', 'node-b')",
        "UPDATE snapshots SET state = ''",
        "UPDATE snapshots SET digest = 'x'",
    ],
)
async def test_a_damaged_snapshot_is_named_and_not_used(path: Path, sql: str) -> None:
    change(path, sql)
    assert await found(path) == ["position 1200: the snapshot is damaged"]
    assert await snapshot_position(path) is None


async def test_a_snapshot_that_the_events_do_not_lead_to_is_named(path: Path) -> None:
    store = await LogStore.open(path)
    state = await load_state(store, 1200)
    await store.write_snapshot(state.model_copy(update={"epoch": 7}))
    await store.close()
    assert await found(path) == ["position 1200: the snapshot differs from the State that the events lead to"]


async def test_a_snapshot_of_another_schema_is_neither_used_nor_wrong(path: Path) -> None:
    change(path, "UPDATE snapshots SET schema = 'x'")
    assert await found(path) == []
    assert await snapshot_position(path) is None


async def test_a_snapshot_newer_than_the_log_is_not_used(path: Path) -> None:
    change(path, "DELETE FROM events WHERE position >= 1000")
    assert await snapshot_position(path) is None


async def test_the_newest_usable_snapshots_are_kept(path: Path) -> None:
    store = await LogStore.open(path)
    for position in range(1300, 1306):
        await store.write_snapshot(await load_state(store, position))
    assert [row.position for row in await store.snapshots()] == list(range(1306 - SNAPSHOTS_KEPT, 1306))
    early = await store.latest_snapshot(upto=1304)
    assert early is not None
    assert early.position == 1304
    await store.close()
    change(path, "UPDATE snapshots SET state = '' WHERE position = 1305")
    assert await snapshot_position(path) == 1304


IN_GENERATIONS = "the table of generations"


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        (
            "UPDATE generations SET prompt_tokens = 8 WHERE task_id = 'task-3'",
            f"position 17: {IN_GENERATIONS} differs for task-3",
        ),
        ("DELETE FROM generations WHERE task_id = 'task-3'", f"position 17: {IN_GENERATIONS} lacks task-3"),
        (
            "INSERT INTO generations (task_id, model_id, key, queued_at) VALUES ('x', '', '', 0)",
            f"position {LENGTH}: {IN_GENERATIONS} has x, and no event has",
        ),
        ("DELETE FROM inbox WHERE message_id = 'join'", "position 2: the inbox does not have its cause join here"),
        ("INSERT INTO inbox VALUES ('x', 9)", "position 9: the inbox has the message x here, and no event has"),
    ],
)
async def test_derived_rows_that_disagree_are_named(path: Path, sql: str, problem: str) -> None:
    change(path, sql)
    assert await found(path) == [problem]


async def test_a_broken_invariant_is_named_once(path: Path) -> None:
    store = await LogStore.open(path)
    time = history(LENGTH)[-1].entry.recorded_at
    lost = Entry(recorded_at=time, cause_id=None, source="test", event=NodeLost(node_id="node-a", reason="test"))
    more = Entry(recorded_at=time, cause_id=None, source="test", event=lost.event)
    await store.append([Recorded(position=LENGTH + 1, entry=lost), Recorded(position=LENGTH + 2, entry=more)])
    await store.close()
    assert await found(path) == ["position 1501: from here on instance instance-a is on the unknown node node-a"]


async def test_time_that_runs_backwards_is_named(path: Path) -> None:
    store = await LogStore.open(path)
    entry = Entry(
        recorded_at=1.0, cause_id=None, source="test", event=InstanceDeleted(instance_id="no such", reason="test")
    )
    await store.append([Recorded(position=LENGTH + 1, entry=entry)])
    await store.close()
    assert await found(path) == ["position 1501: its time is before that of the event before it"]


async def test_a_log_may_be_verified_while_it_grows(path: Path) -> None:
    async def append(after: int) -> None:
        store = await LogStore.open(path)
        await store.append(history(30, after=after))
        await store.close()

    def grow(_position: int, end: int) -> None:
        if end < LENGTH + 90:
            # By another thread with a loop of its own: a master does not wait for whoever verifies.
            master = Thread(target=lambda: asyncio.run(append(LENGTH + 30 * len(ends))))
            master.start()
            master.join()
        ends.append(end)

    ends: list[int] = []
    reader = await LogStore.open(path, read_only=True)
    result = await verify(reader, grow)
    await reader.close()
    assert result.problems == ()
    assert result.position == LENGTH + 90


async def test_a_queued_generation_is_in_the_table_before_it_ends(path: Path) -> None:
    store = await LogStore.open(path)
    time = history(LENGTH)[-1].entry.recorded_at
    event = GenerationQueued(task_id="late", model_id="maker/model", estimated_tokens=1, key="", reply_to="api")
    entry = Entry(recorded_at=time, cause_id=None, source="test", event=event)
    await store.append([Recorded(position=LENGTH + 1, entry=entry)])
    await store.close()
    assert await found(path) == []
