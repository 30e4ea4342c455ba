"""`exo log compact` on a real file."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from log_events import BEGIN, FIRST_GENERATION, history
from typer.testing import CliRunner

from exo.cli.log.app import app
from exo.domain.ids import MessageId
from exo.domain.state import ENDED_KEPT
from exo.errors import Fatal, Rejected
from exo.log.moving.compacting import NEWEST_KEPT, compact
from exo.log.replay import load_state
from exo.log.store import LogStore
from exo.log.verify import verify
from exo.models.lock import locked_if_free

COMPACTABLE = 6000
LENGTH = NEWEST_KEPT + COMPACTABLE
GENERATIONS = (COMPACTABLE - FIRST_GENERATION + 1) // 3 - ENDED_KEPT
"""Those that ended among the first COMPACTABLE events, less those that State kept there."""


class Home(NamedTuple):
    """A node's home, and its log."""

    path: Path

    @property
    def log(self) -> Path:
        """The log's file."""
        return self.path / "log" / "exo.sqlite3"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)

    async def work() -> None:
        store = await LogStore.open(home.log, durable=False)
        await store.append(history(LENGTH))
        await store.write_snapshot(await load_state(store))
        await store.close()

    asyncio.run(work())
    return home


def run(home: Home, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--home", str(home.path)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def query(home: Home, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(home.log)) as connection:
        return connection.execute(sql).fetchall()


def change(home: Home, sql: str) -> None:
    with closing(sqlite3.connect(home.log)) as connection, connection:
        assert connection.execute(sql).rowcount > 0


def test_what_is_over_gives_its_room_back_and_the_chain_goes_on(home: Home) -> None:
    state, usage = run(home, "replay", "--json"), query(home, "SELECT * FROM generations ORDER BY task_id")
    chains = query(home, "SELECT position, recorded_at, chain FROM events")
    done = json.loads(run(home, "compact", "--json"))
    assert (done["upto"], done["generations"], done["events"]) == (COMPACTABLE, GENERATIONS, 3 * GENERATIONS)
    assert done["content_bytes"] > 0
    assert done["freed_bytes"] > 0
    assert query(home, f"SELECT 1 FROM events WHERE type = 'Compacted' AND position > {COMPACTABLE}") == []
    assert run(home, "verify") == f"{LENGTH} events, chain and State agree\n"
    assert run(home, "replay", "--json") == state
    assert query(home, "SELECT * FROM generations ORDER BY task_id") == usage
    assert query(home, "SELECT position, recorded_at, chain FROM events") == chains


def test_a_second_time_there_is_nothing_to_drop(home: Home) -> None:
    run(home, "compact")
    assert run(home, "compact").startswith(f"compacted 0 events up to position {COMPACTABLE}: 0 generations")


def test_the_log_goes_on_afterwards(home: Home) -> None:
    run(home, "compact")

    async def work() -> None:
        store = await LogStore.open(home.log)
        await store.append(history(3000, after=LENGTH))
        await store.close()

    asyncio.run(work())
    assert run(home, "verify") == f"{LENGTH + 3000} events, chain and State agree\n"
    assert json.loads(run(home, "compact", "--json"))["events"] == 3000
    assert run(home, "verify") == f"{LENGTH + 3000} events, chain and State agree\n"


def test_a_dry_run_says_what_it_would_drop_and_drops_nothing(home: Home) -> None:
    before = query(home, "SELECT * FROM events")
    with locked_if_free(home.path / "master.lock"):
        said = run(home, "compact", "--dry-run")
    assert said.startswith(f"would compact {3 * GENERATIONS} events up to position {COMPACTABLE}: {GENERATIONS} gen")
    assert query(home, "SELECT * FROM events") == before


def test_what_is_young_stays(home: Home) -> None:
    (last,) = history(1, after=999)
    assert last.entry.recorded_at == BEGIN + 125
    for older_than, upto in (("2023-11-14T22:15:25+00:00", 1000), ("3000w", 0)):
        assert json.loads(run(home, "compact", "--json", "--dry-run", "--older-than", older_than))["upto"] == upto
    assert "expected is how long ago" in CliRunner().invoke(app, ["compact", "--older-than", "7"]).stderr


def test_what_comes_after_the_oldest_snapshot_stays(home: Home) -> None:
    async def work() -> None:
        store = await LogStore.open(home.log)
        await store.write_snapshot(await load_state(store, 1000))
        await store.close()

    asyncio.run(work())
    assert json.loads(run(home, "compact", "--json"))["upto"] == 999
    assert run(home, "verify") == f"{LENGTH} events, chain and State agree\n"


def test_messages_of_dropped_events_are_forgotten_and_others_not(home: Home) -> None:
    run(home, "compact")

    async def work() -> dict[MessageId, int]:
        store = await LogStore.open(home.log, read_only=True)
        found = await store.seen([MessageId(name) for name in ("join", "start-0", "end-0", "start-3000", "end-3000")])
        await store.close()
        return found

    assert asyncio.run(work()) == {"join": 2, "start-3000": 9006, "end-3000": 9008}


def test_an_event_that_was_compacted_says_so(home: Home) -> None:
    (chain,) = query(home, "SELECT chain FROM events WHERE position = 6")
    run(home, "compact")
    assert "type      compacted: `exo log compact` dropped what this event said" in run(home, "show", "6")
    assert query(home, "SELECT chain FROM events WHERE position = 6") == [chain]
    assert "Compacted" not in run(home, "show", "5")


@pytest.mark.parametrize("position", [3, 300, COMPACTABLE])
def test_a_damaged_log_is_not_compacted_past_the_damage(home: Home, position: int) -> None:
    change(home, f"UPDATE events SET source = 'someone' WHERE position = {position}")
    with pytest.raises(Fatal, match=f"the chain is broken at position {position}: run `exo log verify`"):
        run(home, "compact")
    assert f"position {position}: the row was changed" in run(home, "verify", code=1)


def test_a_changed_digest_breaks_the_chain(home: Home) -> None:
    run(home, "compact")
    change(home, "UPDATE events SET body = '" + "0" * 64 + "' WHERE position = 6")
    assert "position 6: the row was changed" in run(home, "verify", code=1)


def test_nothing_is_compacted_beside_a_running_master(home: Home) -> None:
    with (
        locked_if_free(home.path / "master.lock"),
        pytest.raises(Rejected, match=r"a master runs with the home .*: stop the node first"),
    ):
        run(home, "compact")
    assert query(home, "SELECT count(*) FROM events WHERE type = 'Compacted'") == [(0,)]


def test_without_a_log_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="there is no event log at"):
        run(Home(tmp_path / "new"), "compact")
    assert not (tmp_path / "new").exists()


async def test_cut_short_it_has_dropped_whole_generations_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "exo.sqlite3"
    store = await LogStore.open(path, durable=False)
    await store.append(history(6000))
    await store.close()
    reader = await LogStore.open(path, read_only=True)
    state = await load_state(reader)

    def cut(position: int, _end: int) -> None:
        if position >= 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await compact(reader, BEGIN + 10**6, newest_kept=0, on_progress=cut)
    dropped = [row.position for row in await reader.rows(0, 6000) if row.type == "Compacted"]
    assert 0 < len(dropped) < 3000
    assert len(dropped) % 3 == 0
    assert (await verify(reader)).problems == ()
    assert await load_state(reader) == state
    rest = await compact(reader, BEGIN + 10**6, newest_kept=0)
    assert len(dropped) // 3 + rest.generations == (6000 - FIRST_GENERATION + 1) // 3 - ENDED_KEPT
    assert (await verify(reader)).problems == ()
    assert await load_state(reader) == state
    await reader.close()
