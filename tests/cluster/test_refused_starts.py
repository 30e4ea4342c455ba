"""A process that cannot run says why in one line and ends, with an exit code that is not 0."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exo.bus.server import find_binary
from tests.cluster.chats import Chat
from tests.cluster.history import state
from tests.stack import Stack, free_port, wait_until


def refusal(stack: Stack, process: str) -> str:
    """The line with which a process refuses to start: its last, and the only one that is no piece of news."""
    ended = stack.cli(process, timeout=30)
    lines = (ended.stdout + ended.stderr).strip().splitlines()
    assert ended.returncode == 1, lines
    assert [line for line in lines[:-1] if " I " not in line] == [], lines
    return lines[-1]


@pytest.mark.parametrize(
    ("process", "words"),
    [
        ("nats", ["port", "is taken", "EXO_NATS_URL"]),
        ("master", ["another master", "runs with the home", "EXO_HOME"]),
        ("worker", ["another worker", "runs with the home", "EXO_HOME"]),
        ("api", ["port", "is taken", "EXO_API_PORT"]),
    ],
)
def test_a_second_one_of_a_kind_is_refused(shared_stack: Stack, process: str, words: list[str]) -> None:
    line = refusal(shared_stack, process)
    assert [word for word in words if word not in line] == [], line
    if "EXO_HOME" in words:
        assert f"`kill {shared_stack.processes[process].pid}` ends it" in line


@pytest.mark.parametrize("process", ["master", "worker", "api"])
def test_another_clusters_server_is_refused(shared_stack: Stack, tmp_path: Path, process: str) -> None:
    stranger = Stack(tmp_path / "home", nats_url=shared_stack.nats_url, cluster="elsewhere")
    line = refusal(stranger, process)
    assert "another cluster" in line and "EXO_CLUSTER" in line


@pytest.fixture
def plain_nats() -> Iterator[str]:
    """The address of a server without JetStream."""
    port = free_port()
    server = subprocess.Popen([find_binary(), "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def test_a_server_without_jetstream_is_refused(plain_nats: str, tmp_path: Path) -> None:
    node = Stack(tmp_path / "home", nats_url=plain_nats)
    with ThreadPoolExecutor() as pool:
        lines = list(pool.map(lambda process: refusal(node, process), ["master", "worker", "api"]))
    assert all("runs without JetStream" in line for line in lines), lines


def test_two_nodes_with_other_homes_and_ports_leave_each_other_alone(shared_stack: Stack, tmp_path: Path) -> None:
    other = Stack(tmp_path / "home")
    try:
        other.start_ready()
        chats = [Chat(stack, f"hello {name}") for stack, name in [(shared_stack, "one"), (other, "two")]]
        assert [chat.wait().text for chat in chats] == ["hello one", "hello two"]
        assert set(state(shared_stack)["nodes"]) != set(state(other)["nodes"])
        other.stop()
        wait_until(lambda: Chat(shared_stack, "still here").wait().text == "still here", "an answer")
    finally:
        other.stop()
