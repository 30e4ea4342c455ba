"""Asking a server for streams, and when their pieces came."""

import asyncio
import json
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from bench.figures import Measured

CONNECTS = 20
"""Tries of one request."""


@dataclass(slots=True)
class Reply:
    """One streamed answer. Times are those of `time.perf_counter`."""

    asked_at: float = 0.0
    times: list[float] = field(default_factory=list[float])
    """When each piece with text came."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def first(self) -> float:
        """Seconds to the first token. Raises IndexError where none came."""
        return self.times[0] - self.asked_at

    @property
    def decode_speed(self) -> float:
        """Tokens per second, from the first to the last."""
        return (self.completion_tokens - 1) / (self.times[-1] - self.times[0])

    def gaps(self, since: float, until: float) -> list[float]:
        """Seconds between two pieces, of those that came in this time."""
        times = [at for at in self.times if since <= at <= until]
        return [after - before for before, after in pairwise(times)]


async def stream_reply(client: httpx.AsyncClient, body: Mapping[str, object], reply: Reply) -> Reply:
    """The answer to a chat request, streamed into `reply` to its end. Raises RuntimeError where it is an error.

    A connection that is dropped before any answer is tried again: mlx_lm.server lets five wait, and drops the rest of a
    burst.
    """
    reply.asked_at = time.perf_counter()
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    for _ in range(CONNECTS):
        try:
            return await _streamed(client, body, reply)
        except httpx.ReadError:
            if reply.times:
                raise
    raise RuntimeError(f"{client.base_url} dropped {CONNECTS} connections")


async def _streamed(client: httpx.AsyncClient, body: Mapping[str, object], reply: Reply) -> Reply:
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {(await response.aread()).decode()[:300]}")
        async for line in response.aiter_lines():
            data = line.removeprefix("data: ")
            if data.startswith("{"):
                _take(reply, json.loads(data), time.perf_counter())
    return reply


def chat(model: str, question: str, max_tokens: int, *, system: str = "", **more: object) -> dict[str, object]:
    """The body of a request at temperature 0."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, **more}


async def ask_all(url: str, bodies: Sequence[Mapping[str, object]]) -> list[Reply]:
    """The answers to requests that are sent side by side."""
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        return await asyncio.gather(*(stream_reply(client, body, Reply()) for body in bodies))


async def stream_all(url: str, model: str, questions: Sequence[str], max_tokens: int) -> Measured:
    """Ask all questions side by side, at temperature 0, streaming; what came back in all."""
    began = time.perf_counter()
    replies = await ask_all(url, [chat(model, question, max_tokens) for question in questions])
    seconds = time.perf_counter() - began
    tokens = sum(reply.completion_tokens for reply in replies)
    return Measured(tokens, seconds, statistics.mean(reply.first for reply in replies))


def _take(reply: Reply, chunk: dict[str, Any], at: float) -> None:
    choices = chunk.get("choices")
    if choices and choices[0]["delta"].get("content"):
        reply.times.append(at)
    if usage := chunk.get("usage"):
        reply.prompt_tokens, reply.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        reply.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class Wire:
    """One connection to a server, with nothing in between: a client library takes a millisecond of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> "Wire":
        """Connect."""
        host, _, port = url.removeprefix("http://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def round_trip(self) -> float:
        """Seconds of a GET that needs nobody but the server itself."""
        began = time.perf_counter()
        self._writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self._reader.readexactly(length)
        return time.perf_counter() - began

    async def first_chunk(self, model: str, question: str) -> float:
        """Seconds from sending a request for a stream to its first content."""
        body = json.dumps({**chat(model, question, 16), "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        began = time.perf_counter()
        self._writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        received, first = b"", 0.0
        while not received.endswith(b"0\r\n\r\n"):
            received += await self._reader.read(65536)
            if not first and re.search(rb'"content":"[^"]', received):
                first = time.perf_counter() - began
        return first
