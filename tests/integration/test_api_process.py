"""The API's process: its start, what it does while others are away, and its end."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.stack import Stack, wait_until

SLOW = {"tokens": ["x"] * 1000, "pace": 0.05}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Stack]:
    """A node of which nothing runs yet."""
    one = Stack(tmp_path / "home")
    try:
        yield one
    finally:
        one.stop()


def chat(message: object, **fields: object) -> dict[str, object]:
    content = message if isinstance(message, str) else json.dumps(message)
    return {"model": "scripted", "messages": [{"role": "user", "content": content}], **fields}


def answers(node: Stack) -> bool:
    try:
        return httpx.get(f"{node.url}/health").status_code == 200
    except httpx.TransportError:
        return False


def reasons(node: Stack) -> str:
    return str(httpx.get(f"{node.url}/ready", timeout=10).json().get("reasons"))


class Reading(threading.Thread):
    """A client that reads a stream to its end."""

    def __init__(self, node: Stack, script: object) -> None:
        super().__init__(daemon=True)
        self._url, self._body = f"{node.url}/v1/chat/completions", chat(script, stream=True)
        self.lines: list[str] = []
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream("POST", self._url, json=self._body, timeout=60) as response:
                for line in response.iter_lines():
                    if line and not line.startswith("id: "):
                        self.lines.append(line)
        except httpx.TransportError as error:
            self.lines.append(repr(error))

    def begun(self) -> "Reading":
        """Return once some of the answer is there."""
        wait_until(lambda: len(self.lines) > 3, "the stream to begin", 10)
        return self

    def ended(self, within: float) -> list[str]:
        """The lines, once it has ended; fails where it does not within so many seconds."""
        self.join(within)
        assert not self.is_alive(), f"the stream goes on after {within} s: {self.lines[-1:]}"
        return self.lines


def test_it_answers_before_nats_is_there_and_says_what_it_waits_for(node: Stack) -> None:
    node.start(["api"])
    wait_until(lambda: answers(node), "the API", 10)
    assert "NATS" in reasons(node)
    response = httpx.post(f"{node.url}/v1/chat/completions", json=chat("hi"))
    assert response.status_code == 503
    assert "retry-after" in response.headers
    node.signal("api", signal.SIGTERM)
    assert node.processes.pop("api").wait(2) == 0


def test_each_missing_part_has_its_reason(node: Stack) -> None:
    node.start(["nats", "api"])
    wait_until(lambda: answers(node) and "master" in reasons(node), "a reason about the master", 10)
    assert httpx.post(f"{node.url}/v1/chat/completions", json=chat("hi")).status_code == 503
    node.start(["master"])
    wait_until(lambda: "no node has joined" in reasons(node), "a reason about nodes", 10)
    response = httpx.post(f"{node.url}/v1/chat/completions", json=chat("hi"))
    assert response.status_code == 503
    assert "retry-after" in response.headers
    node.start(["worker"])
    node.wait_ready()
    wait_until(lambda: "curl" in node.output("api"), "the block that says how to use it", 5)
    assert httpx.post(f"{node.url}/v1/chat/completions", json=chat("hi")).status_code == 200


def test_a_port_that_is_taken_is_one_line_with_what_to_do(node: Stack) -> None:
    node.start(["api"])
    wait_until(lambda: answers(node), "the API", 10)
    second = node.cli("api", timeout=20)
    assert second.returncode == 1
    assert "EXO_API_PORT" in second.stderr
    assert "listening" not in second.stderr
    assert "Traceback" not in second.stderr


def test_a26_ten_requests_for_a_cold_model_load_it_once(tmp_path: Path) -> None:
    node = Stack(tmp_path / "home", default_model="none")
    try:
        node.start()
        wait_until(lambda: answers(node) and "no model is placed" in reasons(node), "a node without a model", 30)
        readers = [Reading(node, f"answer {number}") for number in range(10)]
        answers_read = [reader.ended(30) for reader in readers]
        assert [lines[-1] for lines in answers_read] == ["data: [DONE]"] * 10
        assert all('"finish_reason":"stop"' in lines[-2] for lines in answers_read)
        events = [event["type"] for event in _events(node)]
        assert events.count("InstancePlaced") == 1
    finally:
        node.stop()


def _events(node: Stack) -> list[dict[str, object]]:
    position = httpx.get(f"{node.url}/state/position").json()
    with httpx.stream("GET", f"{node.url}/events?after=0") as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        return [json.loads(next(lines).removeprefix("data: "))["entry"]["event"] for _ in range(position)]


def test_it_ends_at_once_with_open_streams_and_cancels_them(stack: Stack) -> None:
    reader = Reading(stack, SLOW).begun()
    began = time.monotonic()
    stack.signal("api", signal.SIGTERM)
    assert stack.processes.pop("api").wait(5) == 0
    assert time.monotonic() - began < 2
    lines = reader.ended(5)
    assert "shutting_down" in lines[-2]
    assert lines[-1] == "data: [DONE]"
    assert "Traceback" not in stack.output("api")
    stack.start(["api"])
    stack.wait_ready()
    assert httpx.get(f"{stack.url}/state/generations").json() == {}
    assert httpx.get(f"{stack.url}/state/ended/0/finish_reason").json() == "cancelled"


def test_it_ends_at_once_when_nats_is_gone(stack: Stack) -> None:
    reader = Reading(stack, SLOW).begun()
    events = threading.Thread(target=_ignore_end, args=(f"{stack.url}/events",), daemon=True)
    events.start()
    stack.kill("nats")
    wait_until(lambda: "NATS" in reasons(stack), "a reason about NATS", 10)
    began = time.monotonic()
    stack.signal("api", signal.SIGTERM)
    assert stack.processes.pop("api").wait(5) == 0
    assert time.monotonic() - began < 2
    assert reader.ended(5)[-1] == "data: [DONE]"
    assert "Traceback" not in stack.output("api")


def _ignore_end(url: str) -> None:
    try:
        httpx.get(url, timeout=30)
    except httpx.TransportError:
        return


def test_a6_a_runner_that_dies_midway_ends_the_stream_with_an_error(stack: Stack) -> None:
    script = {"tokens": ["a", "b", "c", "d"], "pace": 0.05, "fault": {"kind": "crash", "after": 3}}
    began = time.monotonic()
    lines = Reading(stack, script).ended(20)
    assert time.monotonic() - began < 6
    contents = [line for line in lines if '"delta":{"content":' in line]
    assert [json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"] for line in contents] == [
        "a",
        "b",
        "c",
    ]
    assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "runner_failed"
    assert lines[-1] == "data: [DONE]"
    stack.wait_ready()
    response = httpx.post(f"{stack.url}/v1/chat/completions", json=chat({**script, "pace": 0.0}), timeout=20)
    assert response.status_code == 502


def test_a_stream_outlives_a_restart_of_nats(stack: Stack) -> None:
    script = {"tokens": [f"{number} " for number in range(100)], "pace": 0.05}
    reader = Reading(stack, script).begun()
    stack.kill("nats")
    stack.start(["nats"])
    lines = reader.ended(40)
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", []))
    assert text == "".join(f"{number} " for number in range(100))
    assert '"finish_reason":"stop"' in lines[-2]


def test_a_stream_outlives_a_restart_of_the_master(stack: Stack) -> None:
    reader = Reading(stack, {"tokens": ["x"] * 60, "pace": 0.05}).begun()
    stack.kill("master")
    stack.start(["master"])
    assert '"finish_reason":"stop"' in reader.ended(20)[-2]


def test_without_a_master_a_request_is_refused_in_time(stack: Stack) -> None:
    stack.kill("master")
    began = time.monotonic()
    in_background = {"model": "scripted", "input": "hi", "background": True}
    with ThreadPoolExecutor() as pool:
        kept = pool.submit(httpx.post, f"{stack.url}/v1/responses", json=in_background, timeout=30)
        response = httpx.post(f"{stack.url}/v1/chat/completions", json=chat("hi"), timeout=30)
    assert (kept.result().status_code, kept.result().json()["error"]["code"]) == (503, "no_master")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_master"
    assert time.monotonic() - began < 17


def test_an_instance_that_was_deleted_stays_deleted(stack: Stack) -> None:
    (instance_id,) = httpx.get(f"{stack.url}/state/instances").json()
    answer = httpx.delete(f"{stack.url}/instance/{instance_id}?wait=10", timeout=20)
    assert answer.status_code == 200
    wait_until(lambda: "no model is placed" in reasons(stack), "a node without a model", 5)
    assert httpx.get(f"{stack.url}/state/instances").json() == {}
