"""Two masters with two homes on one server, as real processes: one leads, the other takes over when it is gone."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from exo.bus.client import connect
from exo.bus.inbox import send_command
from exo.bus.queries import ask_outcome
from exo.domain.ids import ModelId
from exo.domain.messages.commands import PlaceInstance
from exo.domain.messages.events import MasterElected, Recorded
from exo.log.store import LogStore
from tests.stack import Stack, wait_until


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Stack, Stack]]:
    """The leading node, which has the server, and the one that follows."""
    first = Stack(tmp_path / "first")
    second = Stack(tmp_path / "second", nats_url=first.nats_url)
    try:
        first.start(["nats", "master"])
        wait_until(lambda: epochs(first) == [1], "the first election")
        second.start(["master"])
        wait_until(lambda: log_of(second) == log_of(first), "the second to follow")
        yield first, second
    finally:
        first.processes.get("master") and first.signal("master", signal.SIGCONT)
        second.stop()
        first.stop()


def log_of(node: Stack) -> list[Recorded]:
    async def read() -> list[Recorded]:
        store = await LogStore.open(node.home / "log" / "exo.sqlite3", read_only=True)
        try:
            return [recorded async for recorded in store.stream()]
        finally:
            await store.close()

    return asyncio.run(read()) if "the log holds" in node.output("master") else []


def epochs(node: Stack) -> list[int]:
    events = [recorded.entry.event for recorded in log_of(node)]
    return [event.epoch for event in events if isinstance(event, MasterElected)]


def leaders(node: Stack) -> list[str]:
    events = [recorded.entry.event for recorded in log_of(node)]
    return [event.node_id for event in events if isinstance(event, MasterElected)]


def command_is_decided(node: Stack) -> Recorded:
    """Send a command, and wait for the event that it ends in."""

    async def send() -> Recorded:
        bus = await connect(node.nats_url, "home", "tester")
        message_id = await send_command(bus, "tester", PlaceInstance(model_id=ModelId("maker/unknown")))
        async with asyncio.timeout(20):
            while not (found := await ask_outcome(bus, message_id, 20)):
                pass
        await bus.close()
        return found[0]

    return asyncio.run(send())


def test_a_killed_leader_is_replaced_and_finds_the_log_when_it_is_back(two: tuple[Stack, Stack]) -> None:
    first, second = two
    before = command_is_decided(first)
    wait_until(lambda: before in log_of(second), "the second to follow")
    first.kill("master")
    wait_until(lambda: epochs(second) == [1, 2], "the second to lead", 15)
    assert len(set(leaders(second))) == 2
    after = command_is_decided(second)
    assert after.position == before.position + 2
    first.start(["master"])
    wait_until(lambda: log_of(first) == log_of(second), "the first to follow")
    assert epochs(first) == [1, 2]


def test_a_leader_that_stood_still_writes_nothing_when_it_wakes(two: tuple[Stack, Stack]) -> None:
    first, second = two
    first.signal("master", signal.SIGSTOP)
    wait_until(lambda: epochs(second) == [1, 2], "the second to lead", 15)
    decided = command_is_decided(second)
    first.signal("master", signal.SIGCONT)
    wait_until(lambda: "leading no longer" in first.output("master"), "the first to notice")
    wait_until(lambda: decided in log_of(first), "the first to follow")
    again = command_is_decided(second)
    wait_until(lambda: log_of(first) == log_of(second) and again in log_of(first), "both logs to be one")
    assert epochs(second) == [1, 2]
    assert again.position == decided.position + 1


def test_a_leader_that_is_stopped_hands_over_at_once(two: tuple[Stack, Stack]) -> None:
    first, second = two
    assert first.end("master", signal.SIGTERM) == 0
    wait_until(lambda: epochs(second) == [1, 2], "the second to lead", 3)


def test_a_second_master_with_the_same_home_is_refused(two: tuple[Stack, Stack]) -> None:
    refused = two[0].cli("master")
    assert refused.returncode == 1
    assert "another master runs with the home" in refused.stderr
    assert "Traceback" not in refused.stderr
