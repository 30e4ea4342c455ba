"""Starts the ranks of one model as processes on this machine."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from exo.domain.ids import RunnerId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard, Sharding
from tests.ranks.program import Job, Outcome, Request, Work
from tests.stack import free_port

PATIENCE = 240.0
"""Seconds for all ranks to load and to run their requests."""


def shards(whole: Shard, sharding: Sharding, ranks: int, split: Sequence[int] = ()) -> list[Shard]:
    """The shards of a model by rank. `split` says how many layers each rank holds; evenly where it is empty."""
    layers = whole.end_layer
    counts = list(split) or [layers // ranks + (rank < layers % ranks) for rank in range(ranks)]
    found: list[Shard] = []
    end = layers
    for rank, count in enumerate(counts):
        start, last = (end - count, end) if sharding == "pipeline" else (0, layers)
        end = start
        update = {"rank": rank, "world_size": ranks, "start_layer": start, "end_layer": last, "sharding": sharding}
        found.append(whole.model_copy(update={**update, "runner_id": RunnerId(f"runner-{rank}")}))
    return found


def greedy(prompt: list[int], max_tokens: int, step: int = 0, after_ends: int = 0) -> Request:
    """A request without randomness."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return Request(step=step, after_ends=after_ends, prompt=prompt, params=params)


def run_ranks(
    works: Sequence[Sequence[Work]], slice_tokens: int | None = None, patience: float = PATIENCE
) -> list[list[Outcome]]:
    """What came of the works that each rank has, by rank and work, within `patience` seconds.

    Fails, showing what it said, where a rank did not end well.
    """
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in works)
    jobs = [
        Job(rank=rank, addresses=addresses, works=list(mine), slice_tokens=slice_tokens)
        for rank, mine in enumerate(works)
    ]
    processes = [start(job) for job in jobs]
    try:
        said = [process.communicate(timeout=patience) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, error) in zip(processes, said, strict=True):
        assert process.returncode == 0, error[-3000:]
    return [_outcomes(output) for output, _ in said]


def _outcomes(output: str) -> list[Outcome]:
    """MLX prints lines of its own when a connection takes several tries."""
    return [Outcome.model_validate_json(line) for line in output.splitlines() if line.startswith("{")]


def start(job: Job) -> subprocess.Popen[str]:
    """One rank, told its job."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ranks.program"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(job.model_dump_json() + "\n")
    process.stdin.flush()
    return process
