"""What does the log cost: to append to, to replay, to start from?

Each figure is a ratio against something measured in the same run, in turn, round after round: appending as the master
does (encoding, chain, projections, inbox, fold, one durable commit a batch) against `sqlite3.executemany` of the same
bodies into a bare table with the same settings; a replay against reading the bodies and validating them, and nothing
else; a fold in a cluster of 10,000 nodes against one in a cluster of 10. Then the time of a start, from the process'
first instruction to the first decision.

usage: python -m bench.log [--rounds N] [--events N] [--full]
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TypeVar, cast

import uvloop
from pydantic import TypeAdapter

from bench import log_folds, log_start
from bench.figures import ratios, spread
from bench.histories import history, recorded
from exo.domain.fold import fold
from exo.domain.messages.events import Event, Recorded
from exo.domain.state import State
from exo.log.replay import load_state
from exo.log.store import LogStore

FULL = 1_000_000
"""Events in the log of a full run."""
BATCHES = ((1, 300), (100, 10_000), (1000, 20_000))
"""Events a commit, and in all, of one round."""

T = TypeVar("T")
_validate = TypeAdapter[Event](Event).validate_json


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the log costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=100_000, help="in the log that is replayed and started from")
    parser.add_argument("--full", action="store_true", help=f"{FULL} events")
    options = parser.parse_args()
    events = FULL if options.full else options.events
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        uvloop.run(appends(folder, options.rounds))
        log_folds.report(options.rounds)
        log = uvloop.run(written(folder / "long.sqlite3", events))
        print(f"  {log.stat().st_size / events:.0f} bytes an event on disk, indexes, inbox and projection in it")
        uvloop.run(replays(log, options.rounds))
        log_start.report(log, events, 3 if options.full else options.rounds)


async def appends(folder: Path, rounds: int) -> None:
    """Events/s of the master's way into the log, and of a bare insert, by the size of a batch."""
    print("append + fold + commit, events/s")
    for size, count in BATCHES:
        events = list(islice(recorded(history()), count))
        bodies = [one.entry.event.model_dump_json() for one in events]
        ours, bare = await in_turn(
            rounds,
            lambda round_, events=events, size=size: append(folder / f"ours-{size}-{round_}", events, size),
            lambda round_, bodies=bodies, size=size: insert(folder / f"bare-{size}-{round_}", bodies, size),
        )
        print(f"  batch {size:5} {spread(ours, '8.0f')}, bare {spread(bare, '8.0f')}")
        print(f"  exo / bare  {spread(ratios(ours, bare), '.3f')}")


async def append(path: Path, events: Sequence[Recorded], size: int) -> float:
    """Events/s through the fold and LogStore, durably, in batches of a size."""
    store = await LogStore.open(path)
    try:
        state, began = State(), time.perf_counter()
        for batch in batches(events, size):
            for one in batch:
                state = fold(state, one)
            await store.append(batch)
        return len(events) / (time.perf_counter() - began)
    finally:
        await store.close()


async def insert(path: Path, bodies: Sequence[str], size: int) -> float:
    """Bodies/s into a bare table, by the driver alone, with the log's journal and flushes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE events (position INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        began, numbered = time.perf_counter(), list(enumerate(bodies, start=1))
        for batch in batches(numbered, size):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO events VALUES (?, ?)", batch)
            connection.execute("COMMIT")
        return len(bodies) / (time.perf_counter() - began)


async def written(path: Path, events: int) -> Path:
    """A log of so many events with one snapshot, at its end."""
    store, began = await LogStore.open(path, durable=False), time.perf_counter()
    try:
        state = State()
        for batch in batches(islice(recorded(history()), events), 5000):
            for one in batch:
                state = fold(state, one)
            await store.append(batch)
        await store.write_snapshot(state)
    finally:
        await store.close()
    print(f"\na log of {events} events, written in {time.perf_counter() - began:.1f} s")
    return path


async def replays(log: Path, rounds: int) -> None:
    """Events/s of a full replay, and of reading and validating the bodies and no more."""
    store = await LogStore.open(log, read_only=True)
    try:
        count = store.position
        ours, bare = await in_turn(
            rounds if count < FULL else 3,
            lambda _: replay(store, count),
            lambda _: read(log, count),
        )
    finally:
        await store.close()
    print(f"  replay {spread(ours, '8.0f')} events/s, bare read and validation {spread(bare, '8.0f')}")
    print(f"  exo / bare  {spread(ratios(ours, bare), '.3f')}")


async def replay(store: LogStore, count: int) -> float:
    """Events/s from the first to State."""
    began = time.perf_counter()
    await load_state(store, use_snapshot=False)
    return count / (time.perf_counter() - began)


async def read(log: Path, count: int) -> float:
    """Bodies/s, read in order and validated."""
    with closing(sqlite3.connect(log)) as connection:
        began = time.perf_counter()
        rows = connection.execute("SELECT body FROM events ORDER BY position")
        while page := cast("list[tuple[str]]", rows.fetchmany(1000)):
            for (body,) in page:
                _validate(body)
        return count / (time.perf_counter() - began)


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """The values in lists of a size, the last maybe shorter."""
    left = iter(values)
    while batch := list(islice(left, size)):
        yield batch


async def in_turn(rounds: int, *measures: Callable[[int], Awaitable[float]]) -> list[list[float]]:
    """What each gives in each round; the order moves by one each round. The first round is not counted."""
    found: list[list[float]] = [[] for _ in measures]
    for number in range(rounds + 1):
        for index in range(len(measures)):
            chosen = (index + number) % len(measures)
            found[chosen].append(await measures[chosen](number))
    return [values[1:] for values in found]


if __name__ == "__main__":
    main()
