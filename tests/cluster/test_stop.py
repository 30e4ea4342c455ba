"""A clean stop: all at once, in seconds, nothing left behind, and the next start finds everything in order."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from exo.domain.limits import SLOTS
from tests.cluster.chats import Chat, script
from tests.cluster.history import assert_sound, state
from tests.stack import PROCESSES, Stack, alive, wait_until

ROOT = Path(__file__).parents[2]


def test_all_end_at_once_while_requests_stream_and_the_next_start_is_clean(stack: Stack) -> None:
    chats = [Chat(stack, script(500, 0.05)) for _ in range(10)]
    chats[0].wait_text()
    runners = [psutil.Process(pid) for pid in stack.runner_pids()]
    began = time.monotonic()
    codes = stack.stop()
    assert time.monotonic() - began < 5
    assert codes == dict.fromkeys(PROCESSES, 0)
    assert psutil.wait_procs(runners, timeout=1)[1] == []
    assert all(chat.wait(5).outcome in ("error", "broken") for chat in chats)
    assert not [name for name in PROCESSES if "Traceback" in stack.output(name)]
    began = time.monotonic()
    stack.start_ready()
    assert time.monotonic() - began < 20
    assert_sound(stack)


def test_a_request_that_waits_for_nats_is_answered_when_the_api_stops(stack: Stack) -> None:
    stack.kill("nats")
    waiting = [Chat(stack, "hello") for _ in range(3)]
    wait_until(lambda: len(connections_of(stack)) >= len(waiting), "the requests to come in")
    assert stack.end("api", signal.SIGTERM) == 0
    assert {(chat.wait(5).status, chat.code) for chat in waiting} == {(503, "shutting_down")}
    assert "Traceback" not in stack.output("api")


def connections_of(stack: Stack) -> list[int]:
    """Who is connected to the API, by their ports."""
    api = psutil.Process(stack.processes["api"].pid)
    return [one.raddr.port for one in api.net_connections("tcp") if one.raddr and one.laddr.port == stack.api_port]


@contextmanager
def under_honcho(tmp_path: Path) -> Generator[tuple[Stack, "subprocess.Popen[bytes]", list[psutil.Process]]]:
    """A node that is ready, its honcho, and all processes that come of that. None of them is left afterwards."""
    node = Stack(tmp_path / "home")
    with (tmp_path / "honcho.out").open("wb") as file:
        honcho = subprocess.Popen(
            [Path(sys.executable).parent / "honcho", "--env", os.devnull, "start"],
            cwd=ROOT,
            env=node.environment | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    children: list[psutil.Process] = []
    try:
        node.wait_ready()
        children = psutil.Process(honcho.pid).children(recursive=True)
        yield node, honcho, children
    finally:
        honcho.kill()
        honcho.wait()
        for process in [*children, *(child for one in children if alive(one.pid) for child in one.children(True))]:
            if process.is_running() and alive(process.pid):
                process.kill()


def test_honcho_starts_a_node_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    output = tmp_path / "honcho.out"
    with under_honcho(tmp_path) as (node, honcho, children):
        wait_until(lambda: "exo is ready" in output.read_text(), "the block that says so", 5)
        assert Chat(node, "hello honcho").wait().text == "hello honcho"
        assert len(children) >= 5, "four processes and a runner"
        honcho.send_signal(signal.SIGINT)
        assert honcho.wait(timeout=5) in (0, 128 + signal.SIGINT)
        assert [process for process in children if alive(process.pid)] == []
    said = output.read_text()
    assert "Traceback" not in said, said
    assert said.count("stopped (rc=0)") == len(PROCESSES), said


def close_the_terminal(honcho: "subprocess.Popen[bytes]") -> None:
    os.killpg(honcho.pid, signal.SIGHUP)


def kill(honcho: "subprocess.Popen[bytes]") -> None:
    honcho.kill()


@pytest.mark.parametrize("lose", [close_the_terminal, kill])
def test_a_node_ends_in_order_when_honcho_is_gone(
    tmp_path: Path, lose: Callable[["subprocess.Popen[bytes]"], None]
) -> None:
    with under_honcho(tmp_path) as (node, honcho, children):
        lose(honcho)
        honcho.wait(timeout=5)
        assert psutil.wait_procs(children, timeout=15)[1] == []
        node.start_ready()
        assert_sound(node)
        node.stop()


def test_a_runner_ends_when_its_worker_is_killed(stack: Stack) -> None:
    runners = [psutil.Process(pid) for pid in stack.runner_pids()]
    stack.kill("worker")
    assert runners and psutil.wait_procs(runners, timeout=5)[1] == []


def test_a_power_cut_leaves_a_log_that_verifies_and_a_node_that_comes_back(stack: Stack) -> None:
    chats = [Chat(stack, script(400, 0.05)) for _ in range(SLOTS)]
    for chat in chats:
        chat.wait_text()
    chats += [Chat(stack, script(3)) for _ in range(2)]
    wait_until(lambda: len(state(stack)["generations"]) == SLOTS + 2, "a queue")
    runners = [psutil.Process(pid) for pid in stack.runner_pids()]
    for name in PROCESSES:
        stack.signal(name, signal.SIGKILL)
    for runner in runners:
        runner.kill()
    for name in PROCESSES:
        stack.kill(name)
    assert [chat for chat in chats if chat.wait(5).outcome != "broken"] == []
    stack.start_ready()
    assert_sound(stack)
    wait_until(lambda: stack.runner_pids() != [], "a runner")
