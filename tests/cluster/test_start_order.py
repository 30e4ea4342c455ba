"""The processes may start in any order: each waits for what it needs, and says what that is."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cluster.chats import Chat
from tests.stack import Stack, wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Stack]:
    node = Stack(tmp_path / "home")
    try:
        yield node
    finally:
        node.stop()


def test_nats_may_come_last(node: Stack) -> None:
    node.start(["api", "worker", "master"])
    for name in ("api", "worker", "master"):
        wait_until(lambda name=name: "waiting for NATS" in node.output(name), f"{name} to say what it waits for")
    assert httpx.get(f"{node.url}/health").status_code == 200
    ready = httpx.get(f"{node.url}/ready")
    assert (ready.status_code, ready.json()) == (
        503,
        {"ready": False, "reasons": [f"waiting for NATS at {node.nats_url}"]},
    )
    assert Chat(node, "too early").wait().code == "unavailable"
    node.start(["nats"])
    node.wait_ready()
    assert Chat(node, "now it is time").wait().text == "now it is time"


def test_the_master_may_come_last(node: Stack) -> None:
    node.start(["nats", "worker", "api"])
    wait_until(lambda: "no master leads" in reasons(node), "/ready to say that no master leads")
    assert Chat(node, "too early").wait().code == "unavailable"
    node.start(["master"])
    node.wait_ready()
    assert Chat(node, "now it is time").wait().text == "now it is time"


def test_the_worker_may_come_last(node: Stack) -> None:
    node.start(["nats", "master", "api"])
    wait_until(lambda: reasons(node) == ["no node has joined"], "/ready to say that no node has joined")
    assert Chat(node, "too early").wait().code == "unavailable"
    node.start(["worker"])
    node.wait_ready()
    assert Chat(node, "now it is time").wait().text == "now it is time"


def reasons(node: Stack) -> list[str]:
    """What /ready says is missing."""
    try:
        return httpx.get(f"{node.url}/ready").json().get("reasons", [])
    except httpx.TransportError:
        return []
