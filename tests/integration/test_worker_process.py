"""The worker as a real process: its runner is killed, hangs, is orphaned; without an API, by the log alone."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from exo.bus.client import connect
from exo.bus.inbox import send_command
from exo.bus.requests import put_request
from exo.domain import limits
from exo.domain.ids import ApiId, TaskId
from exo.domain.messages.commands import Command, PlaceInstance, StartGeneration
from exo.domain.messages.events import (
    Event,
    GenerationFinished,
    InstanceDeleted,
    InstanceFailed,
    NodeJoined,
    NodeLost,
    RunnerFailed,
    RunnerReady,
    RunnerStarted,
    RunnerStopped,
)
from exo.domain.messages.requests import ChatMessage, GenerationRequest
from exo.domain.sampling import SamplingParams
from exo.log.store import LogStore
from exo.models.scripted import SCRIPTED_CARD
from tests.stack import Stack, alive, wait_until

E = TypeVar("E")
MODEL = SCRIPTED_CARD.model_id


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Stack]:
    """A node without an API, whose worker has joined."""
    node = Stack(tmp_path / "home", step_timeout="2")
    try:
        node.start(["nats", "master", "worker"])
        wait_until(lambda: bool(logged(node, NodeJoined)), "the worker to join")
        yield node
    finally:
        node.stop()


def logged(node: Stack, kind: type[E]) -> list[E]:
    """The events of one type in the log's file, in order."""

    async def read() -> list[Event]:
        store = await LogStore.open(node.home / "log" / "exo.sqlite3", read_only=True)
        try:
            return [recorded.entry.event async for recorded in store.stream()]
        finally:
            await store.close()

    if not (node.home / "log" / "exo.sqlite3").exists() or "the log holds" not in node.output("master"):
        return []
    return [event for event in asyncio.run(read()) if isinstance(event, kind)]


def tell(node: Stack, command: Command, request: GenerationRequest | None = None) -> None:
    """Put a command, and the payload that belongs to it, where an API would."""

    async def send() -> None:
        bus = await connect(node.nats_url, "home", "tester")
        if request is not None and isinstance(command, StartGeneration):
            await put_request(bus, command.task_id, request)
        await send_command(bus, "tester", command)
        await bus.close()

    asyncio.run(send())


def place(node: Stack) -> int:
    """Have the model placed and wait until it is ready; its runner's process."""
    tell(node, PlaceInstance(model_id=MODEL))
    wait_ready(node, 1)
    return runner_pid(node)


def wait_ready(node: Stack, times: int, timeout: float = 20) -> None:
    wait_until(lambda: len(logged(node, RunnerReady)) == times, f"the runner to be ready {times} times", timeout)


def runner_pid(node: Stack) -> int:
    (pid,) = node.runner_pids()
    return pid


def start(task: str) -> StartGeneration:
    return StartGeneration(
        task_id=TaskId(task), model_id=MODEL, estimated_tokens=1, key="anna", reply_to=ApiId("tester")
    )


def says(text: str) -> GenerationRequest:
    return GenerationRequest(messages=(ChatMessage(role="user", content=text),), params=SamplingParams())


def test_a_killed_runner_is_seen_within_five_seconds_and_started_again(node: Stack) -> None:
    pid = place(node)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: bool(logged(node, RunnerFailed)), "the failure", 5)
    assert logged(node, RunnerFailed)[0].reason == "the runner's process was killed by SIGKILL"
    wait_ready(node, 2)
    assert runner_pid(node) != pid
    first, second = logged(node, RunnerStarted)
    assert first.runner_id == second.runner_id
    assert first.process != second.process


def test_a_runner_that_hangs_in_a_step_is_ended_and_started_again(node: Stack) -> None:
    pid = place(node)
    tell(node, start("t1"), says('{"tokens": ["a", "b"], "fault": {"kind": "hang", "after": 1}}'))
    wait_until(lambda: bool(logged(node, RunnerFailed)), "the failure", 10)
    assert logged(node, RunnerFailed)[0].reason == "a step of the engine did not end within 2 s"
    (finished,) = logged(node, GenerationFinished)
    assert (finished.task_id, finished.finish_reason, finished.code) == ("t1", "error", "runner_failed")
    wait_ready(node, 2)
    assert not alive(pid)
    tell(node, start("t2"), says("all is well"))
    wait_until(lambda: len(logged(node, GenerationFinished)) == 2, "the next answer")
    assert logged(node, GenerationFinished)[1].finish_reason == "stop"


def test_a_runner_that_exits_says_with_which_code(node: Stack) -> None:
    place(node)
    tell(node, start("t1"), says('{"tokens": ["a"], "fault": {"kind": "crash"}}'))
    wait_until(lambda: bool(logged(node, RunnerFailed)), "the failure", 5)
    assert logged(node, RunnerFailed)[0].reason == "the runner's process ended with exit code 70"
    wait_ready(node, 2)


def test_an_engine_that_breaks_says_why(node: Stack) -> None:
    place(node)
    tell(node, start("t1"), says('{"tokens": ["a"], "fault": {"kind": "out_of_memory"}}'))
    wait_until(lambda: bool(logged(node, RunnerFailed)), "the failure", 5)
    assert "MemoryError" in logged(node, RunnerFailed)[0].reason
    wait_ready(node, 2)


def test_a_killed_workers_runner_ends_too_and_a_new_worker_starts_it_again(node: Stack) -> None:
    pid = place(node)
    node.kill("worker")
    wait_until(lambda: not alive(pid), "the orphan's end", 5)
    node.start(["worker"])
    wait_ready(node, 2)
    first, second = logged(node, NodeJoined)
    assert first.node_id == second.node_id
    assert first.boot_id != second.boot_id
    assert runner_pid(node) != pid
    assert logged(node, RunnerFailed) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_stopped_leaves_no_process_and_says_goodbye(node: Stack, number: signal.Signals) -> None:
    pid = place(node)
    assert node.end("worker", number) == 0
    assert not alive(pid)
    wait_until(lambda: bool(logged(node, RunnerStopped)), "the goodbye", 5)
    assert logged(node, NodeLost) == []


def test_a_worker_that_is_stopped_twice_still_says_goodbye(node: Stack) -> None:
    pid = place(node)
    node.signal("worker", signal.SIGINT)
    assert node.end("worker", signal.SIGTERM) == 0
    assert not alive(pid)
    wait_until(lambda: bool(logged(node, RunnerStopped)), "the goodbye", 5)


def test_a_worker_that_comes_back_soon_has_its_instances_and_one_that_stays_away_loses_them(node: Stack) -> None:
    place(node)
    node.end("worker", signal.SIGTERM)
    node.start(["worker"])
    wait_ready(node, 2)
    assert logged(node, InstanceDeleted) == []
    node.end("worker", signal.SIGTERM)
    wait_until(lambda: bool(logged(node, NodeLost)), "the loss", 20)
    assert len(logged(node, InstanceDeleted)) == 1


def test_a_runner_outlives_a_restart_of_nats_and_of_the_master(node: Stack) -> None:
    pid = place(node)
    for process in ("nats", "master"):
        node.kill(process)
        node.start([process])
        task = f"after {process}".replace(" ", "-")
        tell(node, start(task), says("still here"))
        wait_until(lambda task=task: task in {one.task_id for one in logged(node, GenerationFinished)}, "the answer")
    assert runner_pid(node) == pid
    assert {one.finish_reason for one in logged(node, GenerationFinished)} == {"stop"}
    assert logged(node, RunnerFailed) == []
    assert logged(node, NodeLost) == []


def test_a_second_worker_with_the_same_home_is_refused(node: Stack) -> None:
    refused = node.cli("worker")
    assert refused.returncode == 1
    assert "another worker runs with the home" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_a_runner_that_fails_five_times_in_a_row_is_given_up_with_the_reason(node: Stack) -> None:
    tell(node, PlaceInstance(model_id=MODEL))
    for number in range(1, limits.RUNNER_FAILURES + 1):
        wait_until(lambda: bool(node.runner_pids()), f"start {number}", limits.backoff(number) + 10)
        os.kill(runner_pid(node), signal.SIGKILL)
        wait_until(lambda count=number: len(logged(node, RunnerFailed)) == count, f"failure {number}", 10)
    assert logged(node, RunnerReady) == []
    (failed,) = logged(node, InstanceFailed)
    assert failed.reason == "the runner's process was killed by SIGKILL (5 times in a row)"
    wait_until(lambda: not node.runner_pids(), "no further try", 5)
