"""How many tokens does one API process deliver, what does a token cost it, and how evenly do they come?

The scripted engine computes nothing; all else is there: nats-server, master, runner, and an API process that reads
chunks and writes server-sent events. In turn, as the limit, the same streams of the same frames from Litestar and
uvicorn alone, which make them themselves (`bench.api_bare`). One client reads all (`bench.api_load`).

At full speed every process wants a core. So beside tokens a second, which the slowest of them limits, stands what
counts for the API: the tokens of one second of its CPU time. Paced, tokens come at a rate that all can keep up with.

usage: python -m bench.api [--rounds N] [--streams 1,100,1000]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from bench.api_load import Load, Order
from bench.contenders import running, wait_ready
from bench.figures import in_turn, ratios, spread
from tests.stack import Stack, free_port

MODEL = "exo/scripted"
SLOTS = 1024
TOKENS_MOST = 900
"""Of one stream: a script has to fit into the model's context."""
TOKENS = 60_000
"""Of all streams together, about."""
PACES: Mapping[int, float] = {1: 0.01, 100: 0.05, 1000: 0.25}
"""Seconds between two tokens of a stream, by how many streams there are."""
PACED_SECONDS = 6.0
CPU_TICK = 0.01
"""Seconds: so finely the system counts CPU time."""

Measure = Callable[[], Load]


@dataclass(frozen=True)
class Contender:
    """Something that serves streams."""

    port: int
    pids: dict[str, int]
    """Its processes; `api` is the one that writes to clients."""
    lead: float
    """Seconds from asking for one stream to asking for the next."""

    def measure(self, streams: int, tokens: int, pace: float) -> Load:
        """One load on it. Raises RuntimeError where a stream was not what it should be."""
        order = Order(self.port, MODEL, streams, tokens, pace, self.lead, self.pids)
        command = [sys.executable, "-m", "bench.api_load"]
        answer = subprocess.run(command, input=json.dumps(asdict(order)), capture_output=True, text=True, check=False)
        if answer.returncode:
            raise RuntimeError(answer.stderr[-2000:])
        load = Load(**json.loads(answer.stdout))
        if load.broken:
            raise RuntimeError(f"{load.broken} of {streams} streams were broken")
        return load


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What one API process delivers.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", default="1,100,1000", help="how many at a time, separated by commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, exo(Path(work)) as ours, bare(Path(work)) as limit:
        for streams in map(int, options.streams.split(",")):
            full = min(TOKENS_MOST, TOKENS // streams)
            report(f"{streams} streams at full speed", ours, limit, options.rounds, (streams, full, 0.0))
            pace = PACES.get(streams, 0.25)
            paced = (streams, int(PACED_SECONDS / pace), pace)
            report(f"{streams} streams, a token each {pace * 1e3:.0f} ms", ours, limit, options.rounds, paced)


@contextmanager
def exo(work: Path) -> Generator[Contender]:
    """A node with the scripted engine, and a slot for every stream."""
    stack = Stack(work / "home", default_model="none")
    try:
        stack.start_with_slots(SLOTS)
        server = psutil.Process(stack.processes["nats"].pid).children()[0].pid
        pids = {name: stack.processes[name].pid for name in ("api", "master")}
        yield Contender(stack.api_port, {**pids, "runner": stack.runner_pids()[0], "nats": server}, 0.01)
    finally:
        stack.stop()


@contextmanager
def bare(work: Path) -> Generator[Contender]:
    """Litestar and uvicorn alone."""
    port = free_port()
    with running([sys.executable, "-m", "bench.api_bare", str(port)], work / "bare.log", {}) as process:
        wait_ready(f"http://127.0.0.1:{port}/ready")
        yield Contender(port, {"api": process.pid}, 0.002)


def report(title: str, ours: Contender, limit: Contender, rounds: int, load: tuple[int, int, float]) -> None:
    """Measure both in turn, and print."""
    measures: dict[str, Measure] = {"exo": partial(ours.measure, *load), "bare": partial(limit.measure, *load)}
    found = in_turn(measures, rounds)
    print(f"\n{title}")
    for name, loads in found.items():
        print(f"  {name:4} {row(loads)}")
    for what, of in (("tokens/s", speed), ("tokens per CPU second", per_cpu_second)):
        both = ([of(one) for one in found[name]] for name in ("exo", "bare"))
        print(f"  exo / bare, {what}: {spread(ratios(*both), '.2f')}")
    print(f"  cores in use: {cores(found['exo'])}; bare: {cores(found['bare'])}", flush=True)


def row(loads: Sequence[Load]) -> str:
    """The figures of one contender."""
    micros = [1e6 / per_cpu_second(one) for one in loads]
    p50, p99 = (median(gaps) * 1e3 for gaps in zip(*((one.p50, one.p99) for one in loads), strict=True))
    return (
        f"{spread([speed(one) for one in loads], '.0f')} tokens/s, {spread(micros, '.1f')} us CPU a token, "
        f"gap p50 {p50:.1f} ms, p99 {p99:.1f} ms, {median(one.tokens / one.reads for one in loads):.1f} tokens a read"
    )


def speed(load: Load) -> float:
    """Tokens a second."""
    return load.speed


def per_cpu_second(load: Load) -> float:
    """Tokens of one second of the API's CPU time, which a tick of the clock is the least of."""
    return load.tokens / max(load.cpu["api"], CPU_TICK)


def cores(loads: Sequence[Load]) -> str:
    """What each process used of a core."""
    names = loads[0].cpu
    return ", ".join(f"{name} {median(one.cpu[name] / one.seconds for one in loads):.2f}" for name in names)


if __name__ == "__main__":
    main()
