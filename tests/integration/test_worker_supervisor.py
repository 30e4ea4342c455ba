"""The supervisor of runner processes, with real processes and a real server."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from exo.bus.client import Bus
from exo.bus.inbox import Inbox
from exo.bus.queries import answer_queries
from exo.bus.replica import following
from exo.config import load_settings
from exo.domain.ids import InstanceId, MessageId, NodeId, RunnerId
from exo.domain.messages.beat import RunnerBeat
from exo.domain.messages.events import Recorded
from exo.domain.messages.reports import RunnerStatusSeen
from exo.domain.placement import Placement, Share, instance_from
from exo.domain.plan import StartRunner
from exo.domain.runner_status import Failed
from exo.domain.state import Node, State
from exo.models.scripted import SCRIPTED_CARD
from exo.worker.supervisor import Supervisor
from tests.stack import alive

if TYPE_CHECKING:
    from conftest import NatsServer, Until

CORES = 8
MOMENTS = [milliseconds / 1000 for milliseconds in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 60, 200, 600)]


@pytest.fixture
async def supervisor(
    bus: Bus, other_bus: Bus, nats_server: "NatsServer", tmp_path: Path, until: "Until"
) -> AsyncIterator[Supervisor]:
    """One that hears of a State in which no runner is any more, so that it waits for nothing to be recorded."""

    async def outcome(message_id: MessageId) -> list[Recorded]:
        return []

    await answer_queries(other_bus, State, outcome)
    settings = load_settings(home=tmp_path, nats_url=nats_server.url, cluster="test", engine="scripted", step_timeout=2)
    async with following(bus) as replica:
        await until(lambda: replica.is_live, "the replica")
        supervisor = Supervisor(settings, bus, replica, lambda: None, cores=lambda: CORES)
        yield supervisor
        await supervisor.close()


def runner(name: str) -> StartRunner:
    node = Node.model_construct(node_id=NodeId("node-a"))
    share = Share(node, 0, SCRIPTED_CARD.layers)
    placement = Placement((share,), "scripted", "pipeline", "ring", context=100, slots=1, reason="")
    instance = instance_from(placement, SCRIPTED_CARD, InstanceId(f"i-{name}"), [RunnerId(name)])
    return StartRunner(instance, instance.shards[0])


def children() -> list[int]:
    """The runner processes that live."""
    return [child.pid for child in psutil.Process().children() if alive(child.pid) and is_runner(child)]


def processes() -> set[int]:
    """All children, also one that has ended and that nobody waited for."""
    return {child.pid for child in psutil.Process().children()}


def watching() -> list[str]:
    """What the supervisor still does."""
    running = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
    return [name for name in running if name.startswith(("Supervisor.", "last_words"))]


def is_runner(process: psutil.Process) -> bool:
    try:
        return "exo.runner.main" in process.cmdline()
    except psutil.Error:
        return False


async def statuses(bus: Bus, wanted: str) -> list[RunnerStatusSeen]:
    """What was reported, up to the first status of a type."""
    inbox = await Inbox.take_over(bus)
    seen: list[RunnerStatusSeen] = []
    async with asyncio.timeout(20):
        while not seen or seen[-1].status.type != wanted:
            bodies = [received.envelope.body for received in await inbox.fetch(1, timeout=1) if received.envelope]
            seen += [body for body in bodies if isinstance(body, RunnerStatusSeen)]
    return seen


async def test_a_runner_that_is_stopped_at_any_moment_of_its_start_ends(supervisor: Supervisor, until: "Until") -> None:
    loop = asyncio.get_running_loop()
    for number, moment in enumerate(MOMENTS):
        supervisor.start(runner(f"r{number}"), "")
        loop.call_later(moment, supervisor.stop, RunnerId(f"r{number}"), "it is not wanted any more")
    await until(lambda: not supervisor.processes, "the end of all")
    assert children() == []


async def test_a_runner_goes_its_way_and_is_stopped_when_it_is_told_to(
    supervisor: Supervisor, bus: Bus, until: "Until"
) -> None:
    supervisor.start(runner("r1"), "")
    way = await statuses(bus, "ready")
    assert [one.status.type for one in way] == ["connecting", "loading", "warming", "ready"]
    assert {one.process for one in way} == {supervisor.processes[RunnerId("r1")]}
    supervisor.stop(RunnerId("r1"), "it is not wanted any more")
    assert (await statuses(bus, "stopped"))[-1].process == way[0].process
    await until(lambda: not supervisor.processes, "the end")


async def test_starting_a_runner_that_is_there_starts_no_second(supervisor: Supervisor, until: "Until") -> None:
    supervisor.start(runner("r1"), "")
    process = supervisor.processes[RunnerId("r1")]
    supervisor.start(runner("r1"), "")
    await until(lambda: len(children()) == 1, "the process")
    assert supervisor.processes == {RunnerId("r1"): process}


async def test_a_runner_that_ignores_the_wish_to_end_is_made_to(supervisor: Supervisor, until: "Until") -> None:
    supervisor.start(runner("r1"), "")
    await until(lambda: len(children()) == 1, "the process")
    os.kill(children()[0], signal.SIGSTOP)
    supervisor.stop(RunnerId("r1"), "it is not wanted any more")
    await until(lambda: not supervisor.processes, "the end")
    assert children() == []


async def test_a_step_that_takes_too_long_ends_the_runner_with_that_reason(
    supervisor: Supervisor, bus: Bus, until: "Until"
) -> None:
    supervisor.start(runner("r1"), "")
    process = (await statuses(bus, "ready"))[-1].process
    earlier = RunnerBeat(runner_id=RunnerId("r1"), process="earlier", in_flight=1, step_seconds=9)
    supervisor.beat(earlier)
    supervisor.beat(earlier.model_copy(update={"process": process, "step_seconds": 1.9}))
    assert len(children()) == 1
    supervisor.beat(earlier.model_copy(update={"process": process, "step_seconds": 2.1}))
    assert (await statuses(bus, "failed"))[-1].status == Failed(reason="a step of the engine did not end within 2 s")


async def test_a_runner_whose_folder_of_programs_is_gone_fails_with_the_reason(
    supervisor: Supervisor, bus: Bus, monkeypatch: pytest.MonkeyPatch, until: "Until"
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    supervisor.start(runner("r1"), "")
    failed = (await statuses(bus, "failed"))[-1].status
    assert isinstance(failed, Failed)
    assert "/nowhere/python" in failed.reason
    await until(lambda: not supervisor.processes, "room for another try")


async def test_the_cores_are_divided_over_the_runners_as_they_come_and_go(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: "Until"
) -> None:
    """Also over those that are started at the same moment."""
    listener = tmp_path / "python"
    listener.write_text(f"#!/bin/sh\nexec cat >{tmp_path}/told.$$\n")
    listener.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(listener))

    def told() -> list[list[int]]:
        lines = [file.read_text().split("\n")[:-1] for file in tmp_path.glob("told.*")]
        return sorted([json.loads(line)["threads"] for line in one] for one in lines)

    for name in ("r1", "r2"):
        supervisor.start(runner(name), "")
    await until(lambda: told() == [[4], [4]], "half of the cores for each")
    supervisor.start(runner("r3"), "")
    await until(lambda: told() == [[2], [4, 2], [4, 2]], "a third of them for each")
    supervisor.stop(RunnerId("r3"), "it is not wanted any more")
    await until(lambda: told() == [[2], [4, 2, 4], [4, 2, 4]], "half of them again")


async def test_files_in_the_folder_of_the_start_are_not_taken_for_pythons_own(
    supervisor: Supervisor, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise RuntimeError('imported')")
    monkeypatch.chdir(tmp_path)
    supervisor.start(runner("r1"), "")
    assert (await statuses(bus, "ready"))[-1].status.type == "ready"


async def test_closing_ends_every_process(supervisor: Supervisor, until: "Until") -> None:
    for number in range(3):
        supervisor.start(runner(f"r{number}"), "")
    await until(lambda: len(children()) == 3, "the processes")
    await asyncio.wait_for(supervisor.close(), 5)
    assert children() == []


@pytest.mark.parametrize("turns", range(8))
async def test_closing_ends_a_process_that_is_just_being_started(supervisor: Supervisor, turns: int) -> None:
    children_before = processes()
    supervisor.start(runner("r1"), "")
    async with asyncio.timeout(20):
        while processes() == children_before:  # noqa: ASYNC110  every turn counts here
            await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)  # one turn of the loop: every await after the process is there is cut once
    await supervisor.close()
    assert processes() == children_before
    assert watching() == []
