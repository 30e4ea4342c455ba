"""What is compared, each in its own process: a library by itself, its server, our engine, and exo's whole stack."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import httpx

from bench.figures import Measured
from exo.domain.limits import SLOTS
from exo.domain.shard import EngineName
from exo.runner.engines.vllm.environment import OF_OUR_ENGINE
from exo.runner.engines.vllm.environment import SETTINGS as VLLM_SETTINGS
from tests.stack import free_port

ENGINE = "bench.engine_process"
ORDERS = {"bench.bare_mlx", "bench.bare_vllm", ENGINE}
"""Modules of processes that take orders on standard input and answer on standard output."""
VLLM_CACHE_BYTES = 2**30
"""Of keys and values: 23,000 tokens of SmolLM2 in float32."""

READY_PATIENCE = 90.0
"""Seconds that a contender may take to load."""
COMPILING_PATIENCE = 600.0
"""The same on a GPU, for which vLLM compiles."""


@cache
def has_cuda() -> bool:
    """Whether vLLM computes on a GPU, as it finds out itself."""
    if find_spec("torch") is None:
        return False
    from exo.runner.engines.vllm.memory import is_on_gpu  # imports torch

    return is_on_gpu()


@contextmanager
def running(command: Sequence[str], log: Path, environment: dict[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """A process and, at the end, all that it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if ORDERS & set(command) else output,
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


Generate = Callable[[list[list[int]], int], Measured]
"""Called with prompts as tokens and the number of tokens to generate."""


@dataclass(frozen=True, slots=True)
class Library:
    """What an engine stands on, and is compared with."""

    engine: EngineName
    bare_name: str
    bare_module: str
    server_name: str
    server: Callable[[Path, Path], AbstractContextManager[str]]
    """From the model's folder and a place for logs to the server's base URL."""


@contextmanager
def bare(library: Library, folder: Path, work: Path) -> Generator[Generate]:
    """The library by itself."""
    with _ordered(["-m", library.bare_module, str(folder), str(work / "cache")], work / "bare.log") as generate:
        yield generate


@contextmanager
def engine(name: EngineName, folder: Path, work: Path, threads: int = 1) -> Generator[Generate]:
    """Our engine by itself, on as many threads as it finds free cores for, at most `threads`."""
    arguments = ["-m", ENGINE, str(folder), str(work / "cache"), "--engine", name, "--threads", str(threads)]
    with _ordered(arguments, work / f"engine-{threads}.log") as generate:
        yield generate


@contextmanager
def _ordered(arguments: list[str], log: Path) -> Generator[Generate]:
    """A process that takes orders as lines of JSON, when it is ready."""
    with running([sys.executable, *arguments], log, {}) as process:
        wait_said(process, log)
        yield lambda prompts, max_tokens: order(process, prompts, max_tokens)


def wait_said(process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once the process has said that it is ready. Raises RuntimeError, with its last words, where it ends."""
    assert process.stdout is not None
    while (line := process.stdout.readline()) != b"ready\n":
        if not line:
            raise RuntimeError(f"{process.args} ended: {log.read_text(errors='replace')[-2000:]}")


def order(process: subprocess.Popen[bytes], prompts: list[list[int]], max_tokens: int) -> Measured:
    """What a process that takes orders needed to generate."""
    give_order(process, prompts, max_tokens)
    return take_answer(process)


def give_order(process: subprocess.Popen[bytes], prompts: list[list[int]], max_tokens: int) -> None:
    """Have a process begin to generate."""
    assert process.stdin is not None
    process.stdin.write(json.dumps({"prompts": prompts, "max_tokens": max_tokens}).encode() + b"\n")
    process.stdin.flush()


def take_answer(process: subprocess.Popen[bytes]) -> Measured:
    """What it measured, when it is done. Raises RuntimeError where it ended instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the process {process.args} ended: its log says why")
    return Measured(**json.loads(line))


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
def vllm_server(folder: Path, work: Path) -> Generator[str]:
    """vLLM's own OpenAI server, as its package starts it: its engine has a process of its own; its base URL."""
    from exo.runner.engines.vllm.memory import UTILIZATION_LEAST  # imports torch

    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--block-size", "32"]
    command += ["--kv-cache-memory-bytes", str(VLLM_CACHE_BYTES), "--max-num-seqs", str(SLOTS)]
    command += ["--gpu-memory-utilization", str(UTILIZATION_LEAST)]  # the cache's size is said, others are there too
    command += [] if has_cuda() else ["--enforce-eager"]
    own = {name: value for name, value in VLLM_SETTINGS.items() if name not in OF_OUR_ENGINE}
    with running(command, work / "vllm_server.log", {**own, "OMP_NUM_THREADS": "1"}):
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


def wait_ready(url: str) -> None:
    """Return once a GET gives 200. Raises TimeoutError after READY_PATIENCE, or COMPILING_PATIENCE on a GPU."""
    patience = COMPILING_PATIENCE if has_cuda() else READY_PATIENCE
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{url} was not ready within {patience:.0f} s")


LIBRARIES: Mapping[EngineName, Library] = {
    "mlx": Library("mlx", "bare mlx-lm", "bench.bare_mlx", "mlx_lm.server", mlx_server),
    "vllm": Library("vllm", "bare vLLM", "bench.bare_vllm", "vLLM's server", vllm_server),
}
