"""A master, as a real process, on a log that was damaged while it was away."""

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from test_master_processes import command_is_decided, epochs, log_of

from exo.bus.client import connect
from exo.bus.streams import EVENTS
from exo.domain.messages.events import Recorded
from tests.stack import Stack, wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Stack]:
    """A server, and a master that was stopped after it had decided three commands."""
    node = Stack(tmp_path / "home")
    try:
        node.start(["nats", "master"])
        wait_until(lambda: epochs(node) == [1], "the first election")
        for _ in range(3):
            command_is_decided(node)
        yield node
    finally:
        node.stop()


def log_file(node: Stack) -> Path:
    return node.home / "log" / "exo.sqlite3"


def wal(node: Stack) -> Path:
    """The write-ahead log: what SQLite has not yet brought into the file."""
    return log_file(node).with_name("exo.sqlite3-wal")


def change(node: Stack, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(log_file(node))) as connection, connection:
        assert connection.execute(sql, parameters).rowcount > 0


def stopped(node: Stack) -> list[Recorded]:
    """Stops the master; its log."""
    assert node.end("master", signal.SIGTERM) == 0
    return log_of(node)


def goes_on(node: Stack, before: list[Recorded]) -> None:
    """A master that starts leads, has everything that was there before, decides, and its log is sound."""
    elections = node.output("master").count("leading, epoch")
    node.start(["master"])
    wait_until(lambda: node.output("master").count("leading, epoch") > elections, "an election")
    decided = command_is_decided(node)
    assert log_of(node)[: len(before)] == before
    assert decided.position == len(before) + 2
    verified = node.cli("log", "verify")
    assert verified.returncode == 0, verified.stdout


def refusal(node: Stack) -> str:
    """What a master that starts says and ends with."""
    held = log_file(node).read_bytes()
    result = node.cli("master")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert log_file(node).read_bytes() == held
    return result.stderr


SQLS = [
    "source = CAST(X'FFFE' AS TEXT)",
    "body = substr(body, 1, 9)",
    "body = X'FF'",
    "source = source || 'x'",
    "chain = 'x'",
]


@pytest.mark.parametrize("sql", SQLS)
def test_a_changed_last_row_is_mended_from_the_stream(node: Stack, sql: str) -> None:
    before = stopped(node)
    change(node, f"UPDATE events SET {sql} WHERE position = ?", before[-1].position)
    goes_on(node, before)
    assert f"is damaged at position {before[-1].position}" in node.output("master")


def test_a_gap_is_mended_from_the_stream(node: Stack) -> None:
    before = stopped(node)
    change(node, "DELETE FROM snapshots")
    change(node, "DELETE FROM events WHERE position = ?", before[-2].position)
    goes_on(node, before)


@pytest.mark.parametrize("sql", SQLS)
def test_what_the_stream_does_not_hold_is_refused_with_its_position(node: Stack, sql: str) -> None:
    last = stopped(node)[-1].position
    change(node, f"UPDATE events SET {sql} WHERE position = ?", last)
    asyncio.run(emptied(node))
    assert f"is damaged at position {last}: " in refusal(node)


def test_without_a_server_a_damage_is_refused_in_time(node: Stack) -> None:
    last = stopped(node)[-1].position
    change(node, "DELETE FROM snapshots")
    change(node, "DELETE FROM events WHERE position = ?", last - 1)
    node.kill("nats")
    assert f"is damaged at position {last - 1}: the event is missing" in refusal(node)


async def emptied(node: Stack) -> None:
    bus = await connect(node.nats_url, "home", "tester")
    await bus.js.purge_stream(EVENTS)
    await bus.close()


def test_a_file_that_was_cut_is_refused(node: Stack) -> None:
    stopped(node)
    size = log_file(node).stat().st_size
    os.truncate(log_file(node), size - 4096)
    assert f"the file is cut, {size - 4096} of {size} bytes are there" in refusal(node)


def test_damaged_snapshots_are_done_without(node: Stack) -> None:
    before = stopped(node)
    change(node, "UPDATE snapshots SET state = X'00', digest = 'x'")
    assert "the snapshot is damaged" in node.cli("log", "verify").stdout
    node.start(["master"])
    wait_until(lambda: epochs(node) == [1, 2], "an election")
    assert log_of(node)[: len(before)] == before
    command_is_decided(node)


def test_what_was_lost_with_the_write_ahead_log_comes_from_the_stream(node: Stack) -> None:
    before = log_of(node)
    node.kill("master")
    assert wal(node).stat().st_size > 0
    wal(node).unlink()
    log_file(node).with_name("exo.sqlite3-shm").unlink()
    goes_on(node, before)


def test_an_older_copy_of_the_file_gets_the_rest_from_the_stream(node: Stack, tmp_path: Path) -> None:
    older = stopped(node)
    shutil.copy(log_file(node), tmp_path / "older")
    goes_on(node, older)
    before = stopped(node)
    assert len(before) > len(older)
    shutil.copy(tmp_path / "older", log_file(node))
    node.start(["master"])
    wait_until(lambda: log_of(node)[: len(before)] == before, "the rest of the log")
    wait_until(lambda: len(epochs(node)) == 3, "an election")
    assert node.cli("log", "verify").returncode == 0


def test_a_log_that_was_closed_is_one_file(node: Stack) -> None:
    stopped(node)
    assert not wal(node).exists() or wal(node).stat().st_size == 0
