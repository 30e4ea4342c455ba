"""`exo log` on a real file, and on one that another process writes to."""

import asyncio
import json
import re
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from log_events import history
from typer.testing import CliRunner

from exo.cli.log.app import app
from exo.domain.fold import fold
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Fatal, Rejected
from exo.log.store import LogStore

LENGTH = 40
EVENTS = history(LENGTH)


def append(home: Path, events: list[Recorded]) -> None:
    async def work() -> None:
        store = await LogStore.open(home / "log" / "exo.sqlite3")
        await store.append(events)
        await store.close()

    asyncio.run(work())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    append(tmp_path, EVENTS)
    return tmp_path


def run(home: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--home", str(home)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def state_at(position: int) -> State:
    state = State()
    for recorded in EVENTS[:position]:
        state = fold(state, recorded)
    return state


def test_tail_prints_one_line_for_each_of_the_last_events(home: Path) -> None:
    lines = run(home, "tail", "-n", "3").splitlines()
    assert [line.split()[0] for line in lines] == ["38", "39", "40"]
    assert re.search(
        r"^ +38  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d  GenerationFinished +task_id=task-10 ", lines[0]
    )


def test_tail_prints_json_lines_of_one_type(home: Path) -> None:
    lines = run(home, "tail", "--json", "--type", "NodeJoined").splitlines()
    assert [Recorded.model_validate_json(line) for line in lines] == [EVENTS[1]]


def test_show_prints_an_event_its_cause_and_what_came_with_it(home: Path) -> None:
    shown = run(home, "show", "7")
    assert "GenerationDispatched, version 1" in shown
    assert "cause     start-0" in shown
    assert "with      6, which had the same cause" in shown
    assert Recorded.model_validate_json(run(home, "show", "7", "--json")) == EVENTS[6]


def test_show_says_where_the_log_ends(home: Path) -> None:
    with pytest.raises(Rejected, match="there is no event at position 41; the log ends at 40"):
        run(home, "show", "41")


def test_replay_prints_the_state_of_now_as_its_json(home: Path) -> None:
    assert run(home, "replay", "--json") == state_at(LENGTH).model_dump_json() + "\n"


def test_replay_goes_back_to_a_position_or_a_time(home: Path) -> None:
    when = datetime.fromtimestamp(EVENTS[9].entry.recorded_at)
    local, zoned = when.isoformat(), when.astimezone().isoformat()
    for moment in ("10", local, zoned):
        assert run(home, "replay", "--to", moment, "--json") == state_at(10).model_dump_json() + "\n"
    assert run(home, "replay", "--to", "0", "--json") == State().model_dump_json() + "\n"
    with pytest.raises(Rejected, match="the log ends at 40"):
        run(home, "replay", "--to", "41")
    run(home, "replay", "--to", "yesterday", code=2)


def test_replay_shows_tables_of_what_there_was(home: Path) -> None:
    shown = run(home, "replay", "--to", "6")
    for word in ("State after position 6", "Nodes", "host-ä", "Instances", "Runners", "ready", "task-0", "queued"):
        assert word in shown
    assert "State after position 0, master none" in run(home, "replay", "--to", "0")


def test_verify_agrees_with_a_sound_log(home: Path) -> None:
    assert run(home, "verify") == "40 events, chain and State agree\n"
    assert json.loads(run(home, "verify", "--json"))["problems"] == []


def test_verify_ends_with_code_1_and_the_positions(home: Path) -> None:
    with closing(sqlite3.connect(home / "log" / "exo.sqlite3")) as connection, connection:
        connection.execute("UPDATE events SET source = 'someone' WHERE position = 5")
    assert "position 5: the row was changed" in run(home, "verify", code=1)
    assert json.loads(run(home, "verify", "--json", code=1))["problems"][0]["position"] == 5


def test_migrate_makes_nothing_where_nothing_is(home: Path, tmp_path: Path) -> None:
    assert "is up to date" in run(home, "migrate")
    with pytest.raises(Fatal, match="there is no event log at"):
        run(tmp_path / "elsewhere", "migrate")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("command", [["tail"], ["show", "1"], ["replay"], ["verify"]])
def test_without_a_log_each_says_so(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(Fatal, match="there is no event log at"):
        run(tmp_path, *command)


async def test_tail_follows_what_a_running_master_appends(tmp_path: Path) -> None:
    master = await LogStore.open(tmp_path / "log" / "exo.sqlite3")
    await master.append(EVENTS)
    call = "from exo.cli.log.app import app; app()"
    arguments = ["-c", call, "tail", "-n", "1", "--follow", "--json", "--home", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None

    async def printed(count: int) -> list[Recorded]:
        assert process.stdout is not None
        lines = [await asyncio.wait_for(process.stdout.readline(), 20) for _ in range(count)]
        return [Recorded.model_validate_json(line) for line in lines]

    more = history(4, after=LENGTH)
    assert await printed(1) == EVENTS[-1:]
    await master.append(more[:1])
    assert await printed(1) == more[:1]
    await master.append(more[1:3])
    assert await printed(2) == more[1:3]
    await master.close()

    again = await LogStore.open(tmp_path / "log" / "exo.sqlite3")
    await again.append(more[3:])
    assert await printed(1) == more[3:]
    await again.close()
    process.terminate()
    await process.communicate()


async def test_tail_ends_quietly_when_it_is_interrupted(home: Path) -> None:
    call = "from exo.cli.log.app import app; app()"
    arguments = ["-c", call, "tail", "-n", "1", "--follow", "--json", "--home", str(home)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), 20)
    process.send_signal(signal.SIGINT)
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, errors) == (130, b"")
