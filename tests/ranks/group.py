"""Starts the ranks of one model as processes on this machine."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from exo.domain.sampling import SamplingParams
from tests.ranks.program import Job, Outcome, Request, Work
from tests.stack import free_port

PATIENCE = 240.0
"""Seconds for all ranks to load and to run their requests."""
GRACE = 2.0
"""Seconds, once a rank has failed, for others to fail too: the first may only be the one that lost the culprit."""


def greedy(prompt: list[int], max_tokens: int, step: int = 0, after_ends: int = 0) -> Request:
    """A request without randomness."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return Request(step=step, after_ends=after_ends, prompt=prompt, params=params)


def run_ranks(
    works: Sequence[Sequence[Work]], slice_tokens: int | None = None, patience: float = PATIENCE
) -> list[list[Outcome]]:
    """What came of the works that each rank has, by rank and work, within `patience` seconds.

    Fails as soon as one rank does not end well, showing what it said: the others may wait for it for ever.
    """
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in works)
    jobs = [
        Job(rank=rank, addresses=addresses, works=list(mine), slice_tokens=slice_tokens)
        for rank, mine in enumerate(works)
    ]
    processes = [start(job) for job in jobs]
    with ThreadPoolExecutor(len(processes)) as pool:
        ends = [pool.submit(_outcomes, process, patience) for process in processes]
        try:
            wait(ends, return_when=FIRST_EXCEPTION)
            wait(ends, timeout=GRACE)
        finally:
            for process in processes:
                process.kill()
    problems = [f"rank {rank}: {error}" for rank, end in enumerate(ends) if (error := end.exception())]
    assert not problems, "\n".join(problems)
    return [end.result() for end in ends]


def _outcomes(process: subprocess.Popen[str], patience: float) -> list[Outcome]:
    """What a rank says up to its end. MLX prints lines of its own when a connection takes several tries."""
    try:
        output, error = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        output, error = process.communicate()
    assert process.returncode == 0, f"exit code {process.returncode} within {patience:.0f} s: {error[-3000:]}"
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
