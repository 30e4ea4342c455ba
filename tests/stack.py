"""A whole node as real processes: its own home, its own ports, on this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PROCESSES = ("nats", "master", "worker", "api")
NO_HUB = "http://127.0.0.1:9"
"""Where nobody listens: no test asks the hub of the world."""
EXO = "from exo.cli.app import main; main()"


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Return once `condition` holds; fail, saying what was waited for, where it does not within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s for {what}")
        time.sleep(0.02)


@contextmanager
def two_nodes(folder: Path, **settings: str) -> Generator[tuple["Stack", "Stack"]]:
    """A node, and beside it a second worker, of which each reaches the other; stopped at the end."""
    first = Stack(folder / "first", **settings)
    second = Stack(folder / "second", **settings, nats_url=first.nats_url)
    try:
        first.start()
        second.start(["worker"])
        wait_until(lambda: first.is_up() and len(reaching(first)) == 2, "two nodes that reach each other", 60)
        yield first, second
    finally:
        second.stop()
        first.stop()


def reaching(stack: "Stack") -> list[str]:
    """The nodes that reach another one."""
    return [node_id for node_id, node in stack.state()["nodes"].items() if node["links"]]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Stack:
    """The processes of one node. Each can be killed and started again."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self.api_port = free_port()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EXO_")},
            "EXO_HOME": str(home),
            "EXO_NATS_URL": f"nats://127.0.0.1:{free_port()}",
            "EXO_API_PORT": str(self.api_port),
            "EXO_ENGINE": "scripted",
            "EXO_DEFAULT_MODEL": "exo/scripted",
            "HF_ENDPOINT": NO_HUB,
            "PYTHONUNBUFFERED": "1",
            **{f"EXO_{name.upper()}": value for name, value in settings.items()},
        }
        self.url = f"http://127.0.0.1:{self.api_port}"
        self.nats_url = self.environment["EXO_NATS_URL"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.headers: dict[str, str] = {}
        """Sent with the questions below: a key, where the API needs one."""

    def start(self, names: Iterable[str] = PROCESSES) -> None:
        """Start processes; what they say goes to files in the home folder."""
        self.home.mkdir(parents=True, exist_ok=True)
        for name in names:
            with (self.home / f"{name}.out").open("ab") as output:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-c", EXO, name],
                    env=self.environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def start_ready(self) -> "Stack":
        """Start all processes and wait until a model answers."""
        self.start()
        self.wait_ready()
        return self

    def start_with_slots(self, slots: int) -> "Stack":
        """Start all processes and wait until the scripted model has so many slots. The node has no default model."""
        self.start()
        wait_until(lambda: self.is_up() and bool(self.state()["nodes"]), "a node", 60)
        body = {"model": "exo/scripted", "slots": slots}
        httpx.post(f"{self.url}/place_instance", json=body, headers=self.headers).raise_for_status()
        self.wait_ready()
        return self

    def wait_worker(self, timeout: float = 60.0) -> None:
        """Wait until the API answers, and a worker has told which models it has or can get."""
        wait_until(self.is_up, "the API", timeout)
        wait_until(lambda: any(node["holdings"] for node in self.state()["nodes"].values()), "the worker", timeout)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until /ready says yes; fail at once where a process has ended."""
        wait_until(self._is_ready_or_broken, f"/ready; {self.home} has the processes' output", timeout)

    def _is_ready_or_broken(self) -> bool:
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {self.output(name)[-2000:]}"
        return self.is_ready()

    def is_ready(self) -> bool:
        """What /ready says."""
        try:
            return httpx.get(f"{self.url}/ready", headers=self.headers, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def state(self) -> dict[str, Any]:
        """What the API knows of the cluster."""
        return httpx.get(f"{self.url}/state", headers=self.headers, timeout=10).json()

    def is_up(self) -> bool:
        """Whether the API answers questions about the cluster, with or without a model."""
        try:
            return httpx.get(f"{self.url}/state", headers=self.headers, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def output(self, name: str) -> str:
        """What a process has said so far."""
        file = self.home / f"{name}.out"
        return file.read_text(errors="replace") if file.exists() else ""

    def kill(self, name: str) -> None:
        """kill -9, and wait until it is gone."""
        self.end(name, signal.SIGKILL)

    def end(self, name: str, number: signal.Signals) -> int:
        """Send a process a signal that ends it, and wait until it is gone; its exit code."""
        self.signal(name, number)
        return self.processes.pop(name).wait(timeout=10)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal."""
        self.processes[name].send_signal(number)

    def runner_pids(self) -> list[int]:
        """The runner processes that the worker has now."""
        import psutil

        if "worker" not in self.processes:
            return []
        try:
            return [child.pid for child in psutil.Process(self.processes["worker"].pid).children()]
        except psutil.NoSuchProcess:
            return []

    def cli(self, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run an `exo` command against this node."""
        return subprocess.run(
            [sys.executable, "-c", EXO, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self) -> dict[str, int]:
        """Stop all as Ctrl-C under honcho does; the exit codes."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        codes: dict[str, int] = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        self.processes.clear()
        return codes
