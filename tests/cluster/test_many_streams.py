"""A thousand streams at once through one API process: each is whole, and each token is in it once."""

import asyncio
import json
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exo.api.http.file_limit import raise_file_limit
from tests.stack import Stack, wait_until

STREAMS = 1000
TOKENS = 25
PREFILL = 30
"""Seconds from a stream's begin to its first token, in which all others are to begin."""
FEW_FILES = 512
"""What a process may have open unless it asks for more, as on many systems."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A node with a slot for each stream, whose processes may open few files unless they ask for more."""
    node = Stack(tmp_path / "home", default_model="none")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, before[1]))
    try:
        node.start_with_slots(STREAMS)
        raise_file_limit()
        yield node
    finally:
        node.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def tokens_of(number: int) -> list[str]:
    """What one stream has to say, and no other says."""
    return [f"{number}.{index} " for index in range(TOKENS)]


async def read_stream(port: int, number: int) -> bytes:
    """All that one client reads, until the server has said all."""
    script = {"tokens": tokens_of(number), "prefill": PREFILL, "pace": 0.1}
    body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": json.dumps(script)}]}
    content = json.dumps(body).encode()
    lines = ("POST /v1/chat/completions HTTP/1.1", "host: localhost", "connection: close")
    head = "".join(f"{line}\r\n" for line in (*lines, f"content-length: {len(content)}", ""))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + content)
        return await reader.read()
    finally:
        writer.close()


def body_of(answer: bytes) -> str:
    """A response's body, out of its chunks."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return body.decode()


def check_stream(number: int, answer: bytes) -> None:
    """Every token once and in order, one role, one finish reason, one end, and events numbered without a gap. Tokens
    may come together where a machine is too slow for all of them."""
    body = body_of(answer)
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    deltas = [json.loads(line)["choices"][0] for line in lines]
    contents = [one["delta"].get("content") for one in deltas]
    assert (contents[0], contents[-1]) == ("", None)
    assert "".join(contents[1:-1]) == "".join(tokens_of(number))
    assert [one["delta"].get("role") for one in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
    assert [one["finish_reason"] for one in deltas] == [*[None] * (len(deltas) - 1), "stop"]
    ids = re.findall(r"^id: .+-(\d+)$", body, re.MULTILINE)
    assert ids == [str(index) for index in range(len(lines) + 1)]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_streams_are_whole(stack: Stack) -> None:
    reading = [asyncio.create_task(read_stream(stack.api_port, number)) for number in range(STREAMS)]

    def all_run() -> bool:
        running = httpx.get(f"{stack.url}/state/generations", timeout=30).json().values()
        return sum(one["instance_id"] is not None for one in running) == STREAMS

    await asyncio.to_thread(wait_until, all_run, f"{STREAMS} that run side by side", PREFILL)
    for number, answer in enumerate(await asyncio.gather(*reading)):
        check_stream(number, answer)
    assert stack.runner_pids()
    assert [name for name in stack.processes if "Traceback" in stack.output(name)] == []
