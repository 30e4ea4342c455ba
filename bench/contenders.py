"""What is compared, each in a process of its own: bare mlx-lm, mlx_lm.server, and exo's whole stack."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

READY_PATIENCE = 90.0
"""Seconds that a contender may take to load."""


@dataclass(frozen=True)
class Measured:
    """Output tokens and the seconds that they took, first request to last token."""

    tokens: int
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


@contextmanager
def running(command: Sequence[str], log: Path, environment: dict[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """A process and, at the end, all that it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if "bench.bare_mlx" in command else output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT if "honcho" in " ".join(command) else signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def bare(folder: Path, work: Path) -> Generator[Callable[[list[list[int]], int], Measured]]:
    """Bare mlx-lm: called with prompts as tokens and the number of tokens to generate."""
    command = [sys.executable, "-m", "bench.bare_mlx", str(folder), str(work / "cache")]
    with running(command, work / "bare.log", {}) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None
        while (line := stdout.readline()) and line != b"ready\n":
            pass

        def measure(prompts: list[list[int]], max_tokens: int) -> Measured:
            stdin.write(json.dumps({"prompts": prompts, "max_tokens": max_tokens}).encode() + b"\n")
            stdin.flush()
            return Measured(**json.loads(stdout.readline()))

        yield measure


@contextmanager
def mlx_server(folder: Path, work: Path) -> Generator[str]:
    """mlx_lm.server; its base URL."""
    port = free_port()
    command = [sys.executable, "-m", "bench.mlx_server", str(work / "cache")]
    command += ["--model", str(folder), "--host", "127.0.0.1", "--port", str(port), "--log-level", "WARNING"]
    with running(command, work / "mlx_server.log", {"HF_HUB_OFFLINE": "1"}):
        url = f"http://127.0.0.1:{port}"
        wait_ready(f"{url}/health")
        yield url


@contextmanager
def exo(work: Path, **settings: str) -> Generator[str]:
    """A whole node under honcho; the API's base URL."""
    port = free_port()
    environment = {
        "EXO_HOME": str(work / f"home-{port}"),
        "EXO_NATS_URL": f"nats://127.0.0.1:{free_port()}",
        "EXO_API_PORT": str(port),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **{f"EXO_{name.upper()}": value for name, value in settings.items()},
    }
    with running([sys.executable, "-m", "honcho", "start"], work / f"exo-{port}.log", environment):
        url = f"http://127.0.0.1:{port}"
        wait_ready(f"{url}/ready")
        yield url


async def stream_all(url: str, model: str, questions: Sequence[str], max_tokens: int) -> Measured:
    """Ask all questions side by side, at temperature 0, streaming; what came back in all."""
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        began = time.perf_counter()
        counts = await asyncio.gather(*(_stream(client, model, question, max_tokens) for question in questions))
        return Measured(sum(counts), time.perf_counter() - began)


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
        self._writer.write(b"GET /health HTTP/1.1\r\nhost: exo\r\n\r\n")
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self._reader.readexactly(length)
        return time.perf_counter() - began

    async def first_chunk(self, model: str, question: str) -> float:
        """Seconds from sending a request for a stream to its first content."""
        body = json.dumps(_body(model, question, 16)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: exo\r\ncontent-length: {len(body)}\r\n"
        began = time.perf_counter()
        self._writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        received, first = b"", 0.0
        while not received.endswith(b"0\r\n\r\n"):
            received += await self._reader.read(65536)
            if not first and re.search(rb'"content":"[^"]', received):
                first = time.perf_counter() - began
        return first


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_ready(url: str) -> None:
    """Return once a GET gives 200. Raises TimeoutError after READY_PATIENCE."""
    deadline = time.monotonic() + READY_PATIENCE
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{url} was not ready within {READY_PATIENCE:.0f} s")


async def _stream(client: httpx.AsyncClient, model: str, question: str, max_tokens: int) -> int:
    tokens = 0
    body = {**_body(model, question, max_tokens), "stream_options": {"include_usage": True}}
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            data = line.removeprefix("data: ")
            if data.startswith("{") and (usage := json.loads(data).get("usage")):
                tokens = int(usage["completion_tokens"])
    return tokens


def _body(model: str, question: str, max_tokens: int) -> dict[str, object]:
    messages = [{"role": "user", "content": question}]
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True}
