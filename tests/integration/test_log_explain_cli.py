"""`exo log tail --entity`, `diff`, `why` and `stats` on the command line."""

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path

import pytest
from log_events import history
from typer.testing import CliRunner

from exo.cli.log.app import app
from exo.domain.messages.events import Recorded
from exo.errors import Fatal, Rejected
from exo.log.store import LogStore

LENGTH = 40
EVENTS = history(LENGTH)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def work() -> None:
        store = await LogStore.open(tmp_path / "log" / "exo.sqlite3")
        await store.append(EVENTS)
        await store.close()

    asyncio.run(work())
    return tmp_path


def run(home: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--home", str(home)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def positions(home: Path, *arguments: str) -> list[int]:
    return [int(line.split()[0]) for line in run(home, "tail", *arguments).splitlines()]


def test_tail_shows_the_events_of_one_thing(home: Path) -> None:
    assert positions(home, "--entity", "task-4") == [18, 19, 20]
    assert positions(home, "--entity", "runner", "-n", "2") == [4, 5]
    assert positions(home, "--entity", "anna", "--type", "GenerationQueued", "-n", "2") == [36, 39]
    assert positions(home, "--entity", "task-4", "--type", "NodeLost") == []
    with pytest.raises(Rejected, match="no event of this log names 'nobody'"):
        run(home, "tail", "--entity", "nobody")
    with pytest.raises(Rejected, match=r"may be any of: .*generation task-1, generation task-10"):
        run(home, "tail", "--entity", "tas")


def test_tail_shows_what_came_since_a_moment(home: Path) -> None:
    assert positions(home, "--since", "38") == [38, 39, 40]
    assert positions(home, "--since", "1", "-n", "1") == [40]
    when = datetime.fromtimestamp(EVENTS[34].entry.recorded_at).isoformat()
    assert positions(home, "--since", when) == [35, 36, 37, 38, 39, 40]
    assert positions(home, "--since", when, "--type", "GenerationQueued") == [36, 39]
    assert positions(home, "--since", "10m") == []
    assert len(positions(home, "--since", "2000w")) == LENGTH
    run(home, "tail", "--since", "yesterday", code=2)


def test_diff_shows_what_changed_and_the_way_back(home: Path) -> None:
    shown = run(home, "diff", "2", "9")
    assert "From position 2 (" in shown
    assert "7 events" in shown
    assert "  + instance-a  maker/model in mlx on node-a, context 2048, 8 slots" in shown
    assert "  + task-0  maker/model for anna, 7 tokens in, 5 out, stop" in shown
    back = run(home, "diff", "9", "2")
    assert "back to position 2" in back
    assert "  - instance-a  maker/model" in back
    changed = run(home, "diff", "3", "5")
    assert "status.type               waiting -> ready" in changed
    assert "State is the same" in run(home, "diff", "40")


def test_diff_prints_json(home: Path) -> None:
    found = json.loads(run(home, "diff", "3", "5", "--json"))
    assert found["runners"]["changed"]["runner-a"]["status.type"] == ["waiting", "ready"]
    assert (found["from"]["position"], found["to"]["position"], found["backwards"]) == (3, 5, False)
    assert json.loads(run(home, "diff", "38", "--json"))["to"]["position"] == LENGTH


def test_diff_says_where_the_log_ends_and_what_a_moment_is(home: Path) -> None:
    with pytest.raises(Rejected, match="there is no event at position 41; the log ends at 40"):
        run(home, "diff", "1", "41")
    run(home, "diff", "now", code=2)


def test_why_tells_a_story_with_positions(home: Path) -> None:
    lines = run(home, "why", "task-4").splitlines()
    assert lines[0] == "generation task-4, as of position 40"
    assert lines[1].startswith("generation task-4 ended, stop: 7 tokens in (2 cached), 5 out; waited 0.50 s")
    told = [line for line in lines[3:] if line[:7].strip()]
    assert [int(line.split()[0]) for line in told] == [3, 4, 5, 18, 19, 20]
    assert "by command StartGeneration start-4 from api worker" in lines[-3] + lines[-4]
    assert "it fits" in told[0]


def test_why_goes_back_to_a_moment_and_prints_json(home: Path) -> None:
    story = json.loads(run(home, "why", "task-4", "--at", "18", "--json"))
    assert story["entity"] == {"kind": "generation", "id": "task-4"}
    assert story["steps"][-1]["type"] == "GenerationQueued"
    assert story["steps"][-1]["cause"]["id"] == "start-4"
    with pytest.raises(Rejected, match="no event of this log names"):
        run(home, "why", "task-4", "--at", "17")


def test_stats_are_shown_and_printed(home: Path) -> None:
    shown = run(home, "stats")
    for word in ("40 events", "GenerationQueued", "bytes an event", "Longest times", "no snapshot", "elections"):
        assert word in shown
    found = json.loads(run(home, "stats", "--json"))
    assert found["types"]["GenerationQueued"]["events"] == 12
    assert sum(found["rate"]["days"].values()) == LENGTH
    assert found["gaps"][0]["seconds"] == 0.125


@pytest.mark.parametrize("command", [["diff", "1"], ["why", "x"], ["stats"], ["tail", "--entity", "x"]])
def test_without_a_log_each_says_so(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(Fatal, match="there is no event log at"):
        run(tmp_path, *command)


async def test_tail_follows_one_thing_while_a_master_appends(tmp_path: Path) -> None:
    master = await LogStore.open(tmp_path / "log" / "exo.sqlite3")
    await master.append(EVENTS)
    call = "from exo.cli.log.app import app; app()"
    options = ["--entity", "anna", "--type", "GenerationQueued", "--since", "39", "--follow", "--json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", call, "tail", *options, "--home", str(tmp_path), stdout=asyncio.subprocess.PIPE
    )

    async def printed() -> Recorded:
        assert process.stdout is not None
        return Recorded.model_validate_json(await asyncio.wait_for(process.stdout.readline(), 20))

    try:
        assert (await printed()).position == 39
        await master.append(history(4, after=LENGTH))
        assert (await printed()).position == 42
        await master.append(history(4, after=LENGTH + 4))
        assert (await printed()).position == 45
    finally:
        await master.close()
        process.terminate()
        await process.communicate()
