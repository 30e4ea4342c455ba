"""One rank as a process, without NATS: joins, then loads its shards, one after the other, and runs requests on each.

`python -m tests.ranks.program`, with a Job as JSON on standard input.
"""

import os
import sys
from pathlib import Path

import numpy as np
import psutil
from pydantic import BaseModel

from exo.domain.embedding import EmbeddingParams
from exo.domain.ids import TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard
from exo.errors import Fatal
from exo.runner.engines.base import PrefillOutput, TokenOutput, VectorOutput
from exo.runner.engines.mlx.engine import MlxEngine
from exo.runner.engines.mlx.slices import SlicePace
from exo.runner.engines.ranks import Peers
from exo.runner.engines.threads import ThreadShare
from exo.runner.structured.guide import Guide
from tests.tiny_models import BLAS_CACHE

TEXTS = TaskId("texts")


class Request(BaseModel):
    """A request, and when it is submitted: before this step, or later, when so many requests have ended."""

    step: int
    after_ends: int = 0
    prompt: list[int]
    params: SamplingParams
    breaks_at: int | None = None
    """The position of the answer for which no token can be chosen."""


class Work(BaseModel):
    """Requests for one shard of one model."""

    folder: Path
    shard: Shard
    requests: list[Request]
    texts: list[list[int]] = []
    """That are to become vectors, submitted before everything else."""


class Job(BaseModel):
    """What a rank is to do."""

    rank: int
    addresses: tuple[str, ...]
    works: list[Work]
    slice_tokens: int | None = None
    """Of a prompt in one step; None leaves it to the measured speed."""


class Outcome(BaseModel):
    """What came of one work."""

    tokens: list[list[int]]
    """By request."""
    cached: list[int]
    """By request, tokens of the prompt that the prefix cache had."""
    resident_bytes: int
    """Of the process, after loading."""
    failures: list[str]
    vectors: dict[int, list[float]] = {}
    """Of the texts, by their indexes."""


class Breaking(Guide):
    """Holds nothing back, but raises at one position."""

    def __init__(self, position: int) -> None:
        self.taken = 0
        self.problem = self.param = ""
        self._position = position

    def take(self, token: int) -> None:
        self.taken += 1

    def undo(self) -> None:
        self.taken -= 1

    def allowed(self) -> None:
        if self.taken == self._position:
            raise ValueError("no choice")


def main() -> None:
    """Runs the job, and leaves without waiting for threads of MLX."""
    job = Job.model_validate_json(sys.stdin.readline())
    pace = None if job.slice_tokens is None else SlicePace(least=job.slice_tokens, most=job.slice_tokens)
    engine = MlxEngine(BLAS_CACHE, ThreadShare(), pace)
    if len(job.addresses) > 1:
        engine.join(Peers(job.rank, job.addresses, "ring"))
    for work in job.works:
        print(run(engine, work).model_dump_json(), flush=True)
    os._exit(0)


def run(engine: MlxEngine, work: Work) -> Outcome:
    """Every rank submits the same before the same step."""
    try:
        engine.load(work.shard, work.folder, lambda _done, _total: None)
    except Fatal as refusal:
        return Outcome(tokens=[], cached=[], failures=[str(refusal)], resident_bytes=0)
    resident = psutil.Process().memory_info().rss
    count = len(work.requests)
    outcome = Outcome(tokens=[[] for _ in range(count)], cached=[0] * count, failures=[], resident_bytes=resident)
    waiting = dict(enumerate(work.requests))
    if work.texts:
        engine.embed(TEXTS, work.texts, EmbeddingParams())
    step = ended = 0
    while engine.in_flight or waiting:
        for number, request in list(waiting.items()):
            if step >= request.step and ended >= request.after_ends:
                guide = None if request.breaks_at is None else Breaking(request.breaks_at)
                engine.submit(TaskId(str(number)), request.prompt, request.params, guide)
                del waiting[number]
        for output in engine.step():
            if isinstance(output, TokenOutput):
                outcome.tokens[int(output.task_id)].append(output.token)
                ended += output.finish_reason is not None
            elif isinstance(output, VectorOutput):
                outcome.vectors[output.index] = np.frombuffer(output.vector, dtype="<f4").tolist()
            elif isinstance(output, PrefillOutput):
                if output.task_id != TEXTS:
                    outcome.cached[int(output.task_id)] = output.cached
            else:
                outcome.failures.append(f"{output.task_id}: {output.code}: {output.message}")
        step += 1
    engine.close()
    engine.ranks.agree([0])  # nobody leaves while another still computes a step ahead
    return outcome


if __name__ == "__main__":
    main()
