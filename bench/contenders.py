"""What is compared, each in a process of its own: bare mlx-lm, mlx_lm.server, and exo's whole stack."""

import asyncio
import json
import os
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


async def first_chunk_seconds(client: httpx.AsyncClient, model: str, question: str) -> float:
    """Seconds from sending a request to its first content."""
    began = time.perf_counter()
    elapsed = 0.0
    async with client.stream("POST", "/v1/chat/completions", json=_body(model, question, 16)) as response:
        async for line in response.aiter_lines():
            if not elapsed and '"content":"' in line and '"content":""' not in line:
                elapsed = time.perf_counter() - began
    return elapsed


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
