"""How long a start takes, from the process' first instruction to the first decision, and the memory it needs.

Counted is what `exo master` does before it asks NATS for the lease: the interpreter, the imports, a look at the tables'
version, opening the log, and State, with the chain checked; then one decision on it, that of a request.

usage, by itself: python -m bench.log_start LOG [--unchecked]
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvloop

from bench.figures import spread

_SHARES = (0.1, 0.5, 1.0)
"""Of the replay, at which memory is looked at."""


@dataclass
class Start:
    """What one start took."""

    loaded_s: float = 0.0
    """Of it the log: opening it, and State."""
    cpu_s: float = 0.0
    """Seconds on the processor, in all: what the start takes on a machine that does nothing else."""
    resident: list[int] = field(default_factory=list[int])
    """Bytes, at each of `_SHARES`."""


def report(log: Path, events: int, rounds: int) -> None:
    """Seconds to the first decision with a snapshot and without any, and memory. Deletes the snapshots of the log."""
    print(f"\nstart with {events} events to the first decision, s")
    show("with a snapshot", [started(log) for _ in range(rounds)])
    with closing(sqlite3.connect(log)) as connection, connection:
        connection.execute("DELETE FROM snapshots")
    show("by full replay, chain checked", [started(log) for _ in range(rounds)])
    unchecked = [started(log, "--unchecked") for _ in range(rounds)]
    show("by full replay alone", unchecked)
    resident = unchecked[-1][1].resident
    shares = ", ".join(f"{size / 2**20:.1f} MiB at {share:.0%}" for share, size in zip(_SHARES, resident, strict=True))
    print(f"  resident memory while replaying: {shares}")


def show(name: str, measured: list[tuple[float, Start]]) -> None:
    """Print one kind of start."""
    total, log, cpu = (
        spread(values, ".2f")
        for values in (
            [total for total, _ in measured],
            [start.loaded_s for _, start in measured],
            [start.cpu_s for _, start in measured],
        )
    )
    print(f"  {name:29} {total}, of it the log {log}; processor {cpu}")


def started(log: Path, *options: str) -> tuple[float, Start]:
    """Seconds that a new process takes to its first decision, and what it says about it."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "bench.log_start", str(log), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        total = time.perf_counter() - began
    return total, Start(**json.loads(line))


def main() -> None:
    """Start, decide, and print what it took as JSON."""
    parser = argparse.ArgumentParser(description="One start.")
    parser.add_argument("log", type=Path)
    parser.add_argument("--unchecked", action="store_true", help="only fold, from the first event on")
    options = parser.parse_args()
    print(json.dumps(asdict(uvloop.run(_start(options.log, unchecked=options.unchecked)))), flush=True)


async def _start(log: Path, *, unchecked: bool) -> Start:
    import importlib

    import psutil

    from bench.histories import card
    from exo.bus.client import new_id
    from exo.domain.ids import ApiId, TaskId
    from exo.domain.messages.commands import StartGeneration
    from exo.domain.react import react
    from exo.log.replay import load_state
    from exo.log.starting import load_checked
    from exo.log.store import LogStore

    importlib.import_module("exo.master.main")  # nothing of it is called, and its imports are part of a start
    process, start, began = psutil.Process(), Start(), time.perf_counter()

    def on_progress(position: int, end: int) -> None:
        while len(start.resident) < len(_SHARES) and position >= _SHARES[len(start.resident)] * end:
            start.resident.append(process.memory_info().rss)

    store = await LogStore.open(log)
    try:
        if unchecked:
            state = await load_state(store, use_snapshot=False, on_progress=on_progress)
        else:
            state = await load_checked(store)
        start.loaded_s = time.perf_counter() - began
        command = StartGeneration(
            task_id=TaskId(new_id()), model_id=card(0).model_id, estimated_tokens=9, key="anna", reply_to=ApiId("api")
        )
        decided = react(state, command, state.time, new_id)
        if not decided:
            raise ValueError("nothing was decided")
        start.cpu_s = time.process_time()
    finally:
        await store.close()
    return start


if __name__ == "__main__":
    main()
