"""What one fold costs, by the size of the cluster."""

import statistics
import time
from collections.abc import Callable, Iterable
from itertools import chain
from random import Random

from bench.figures import spread
from bench.histories import changed, finished, instance_id, joined, new_id, placed, queued, recorded, runner_id
from exo.domain.fold import fold
from exo.domain.ids import TaskId
from exo.domain.messages.events import Entry, Event, GenerationDispatched, Recorded, RunnerReady
from exo.domain.state import State

SIZES = (10, 1000, 10_000)
FOLDS = 3000
"""In one measurement."""

Kind = Callable[[int, Random], list[Event]]


def report(rounds: int) -> None:
    """Microseconds of a fold in clusters of each size, in turn, and how much the largest takes longer."""
    print("\none fold, µs, by nodes")
    states = {size: cluster(size) for size in SIZES}
    for name, kind in KINDS.items():
        found: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(rounds):
            for size, state in states.items():
                found[size].append(seconds(state, kind, size) * 1e6)
        figures = ", ".join(f"{size}: {statistics.median(found[size]):.2f}" for size in SIZES)
        grown = [large / small for large, small in zip(found[SIZES[-1]], found[SIZES[0]], strict=True)]
        print(f"  {name:20} {figures}; {SIZES[-1]} / {SIZES[0]}: {spread(grown, '.2f')}")


def cluster(size: int) -> State:
    """So many nodes, each with a ready instance."""
    random = Random(size)
    return folded(State(), recorded(chain(joined(size, random), placed(size, random))))


def folded(state: State, events: Iterable[Recorded]) -> State:
    """State after more events."""
    for one in events:
        state = fold(state, one)
    return state


def seconds(state: State, kind: Kind, size: int) -> float:
    """What one fold of a kind of event takes, all over the cluster."""
    events = kind(size, Random(1))
    following = [
        Recorded(position=position, entry=Entry(recorded_at=state.time, cause_id=None, source="bench", event=event))
        for position, event in enumerate(events, start=state.position + 1)
    ]
    began = time.perf_counter()
    folded(state, following)
    return (time.perf_counter() - began) / len(following)


def _changes(size: int, random: Random) -> list[Event]:
    return [changed(random.randrange(size), random) for _ in range(FOLDS)]


def _readiness(size: int, random: Random) -> list[Event]:
    return [RunnerReady(runner_id=runner_id(random.randrange(size)), tokens_per_second=40.0) for _ in range(FOLDS)]


def _generations(size: int, random: Random) -> list[Event]:
    events: list[Event] = []
    for _ in range(FOLDS // 3):
        task_id = TaskId(new_id(random))
        dispatched = GenerationDispatched(task_id=task_id, instance_id=instance_id(random.randrange(size)))
        events += [queued(task_id), dispatched, finished(task_id, random)]
    return events


KINDS: dict[str, Kind] = {"NodeChanged": _changes, "RunnerReady": _readiness, "a generation's": _generations}
