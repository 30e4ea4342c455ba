"""The queue of a model on a real node: its end, over every API and from every API process, and whose turn it is."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stack import Stack, wait_until

ANNA, BEN = "127.0.0.1", "127.0.0.2"
"""Two clients, by the addresses that they come from."""
LONG = {"tokens": ["word "] * 10, "pace": 60}
HELLO = {"tokens": ["hello"]}


def body(script: object, **fields: object) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": json.dumps(script)}], **fields}


def hold(stack: Stack, address: str = ANNA) -> socket.socket:
    """A client that asks for a long stream and does not read it."""
    held = socket.create_connection(("127.0.0.1", stack.api_port), source_address=(address, 0))
    content = json.dumps(body(LONG, stream=True)).encode()
    held.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(content) + content
    )
    return held


def clients(stack: Stack, *, running: bool) -> list[str]:
    """Whose generations run, or wait."""
    live = stack.state()["generations"].values()
    return sorted(one["client"] for one in live if (one["instance_id"] is not None) == running)


def wait_held(stack: Stack, running: int, waiting: int) -> None:
    wait_until(lambda: len(clients(stack, running=True)) == running, f"{running} that run")
    wait_until(lambda: len(clients(stack, running=False)) == waiting, f"{waiting} that wait")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A node with one slot, and two places in the queue, all taken."""
    stack = Stack(tmp_path_factory.mktemp("full") / "home", default_model="none", queue_per_model="2")
    with ExitStack() as closing:
        closing.callback(stack.stop)
        stack.start_with_slots(1)
        for _ in range(3):
            closing.enter_context(hold(stack))
        wait_held(stack, 1, 2)
        yield stack


@pytest.fixture
def other_api(full: Stack, tmp_path: Path) -> Iterator[Stack]:
    """A second API process of the same cluster."""
    other = Stack(tmp_path / "other", default_model="none", nats_url=full.nats_url)
    other.start(["api"])
    wait_until(other.is_up, "the second API process")
    yield other
    other.stop()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "fields", "kind"),
    [
        ("/v1/chat/completions", {}, "rate_limit_error"),
        ("/v1/completions", {"messages": None, "prompt": "hello"}, "rate_limit_error"),
        ("/v1/responses", {"messages": None, "input": "hello"}, "rate_limit_error"),
        ("/v1/messages", {"max_tokens": 5}, "rate_limit_error"),
    ],
)
def test_one_more_than_may_wait_is_told_when_to_come_again(
    full: Stack, path: str, fields: dict[str, object], kind: str, stream: bool
) -> None:
    asked = {name: value for name, value in {**body(HELLO, stream=stream), **fields}.items() if value is not None}
    answer = httpx.post(f"{full.url}{path}", json=asked, timeout=30)
    assert answer.status_code == 429
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    assert error["type"] == kind
    assert "2 requests wait for 'exo/scripted' already" in error["message"]
    assert "queue_full" in answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_ollamas_clients_are_told_in_ollamas_envelope(full: Stack, stream: bool) -> None:
    answer = httpx.post(f"{full.url}/ollama/api/chat", json=body(HELLO, stream=stream), timeout=30)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert "2 requests wait for 'exo/scripted' already" in answer.json()["error"]


def test_it_is_one_queue_for_all_api_processes(full: Stack, other_api: Stack) -> None:
    answer = httpx.post(f"{other_api.url}/v1/chat/completions", json=body(HELLO), timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")


def test_two_hundred_requests_do_not_hold_back_the_one_of_another(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "home", default_model="none")
    with ExitStack() as closing:
        closing.callback(stack.stop)
        stack.start_with_slots(1)
        first = closing.enter_context(hold(stack))
        wait_held(stack, 1, 0)
        for _ in range(200):
            closing.enter_context(hold(stack))
        wait_held(stack, 1, 200)
        transport = httpx.HTTPTransport(local_address=BEN)
        ben = closing.enter_context(httpx.Client(base_url=stack.url, transport=transport, timeout=60))
        with ben.stream("POST", "/v1/chat/completions", json=body(HELLO, stream=True)) as answer:
            assert clients(stack, running=False) == [ANNA] * 200 + [BEN]
            first.close()
            assert '"content":"hello"' in answer.read().decode()
        wait_held(stack, 1, 199)
        assert clients(stack, running=True) == [ANNA]
