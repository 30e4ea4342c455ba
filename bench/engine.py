"""How fast is the engine, and what do the rest of the stack, a schema, a long prompt and a second rank cost it?

Each question measures its contenders in turn, round after round, in one run; printed are medians and ranges, and the
ratios of each round. Where nothing else is said, all compute with one thread, on SmolLM2-135M in float32.

usage: python -m bench.engine [--engine mlx|vllm] [--only QUESTION,QUESTION] [--rounds N] [--streams N,N] [--quick]
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.contenders import LIBRARIES
from bench.engine_gap import gap
from bench.engine_prefix import prefix
from bench.engine_ranks import ranks
from bench.engine_setup import Setup
from bench.engine_speed import speed
from bench.engine_structured import structured
from bench.engine_threads import threads

QUESTIONS: dict[str, Callable[[Setup], None]] = {
    "speed": speed,
    "prefix": prefix,
    "gap": gap,
    "structured": structured,
    "threads": threads,
    "ranks": ranks,
}
MLX_ONLY = {"ranks"}
"""A model on vLLM has one rank."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="How fast the engine is.")
    parser.add_argument("--engine", choices=LIBRARIES, default="mlx", help="each in its own environment: make ENGINE=")
    parser.add_argument("--only", help="questions, separated by commas; otherwise all that the engine has")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", default="1,4,8,16", help="numbers of streams for the question speed")
    parser.add_argument("--quick", action="store_true", help="two rounds of prompts and answers a quarter as long")
    options = parser.parse_args()
    known = [name for name in QUESTIONS if options.engine == "mlx" or name not in MLX_ONLY]
    asked = options.only.split(",") if options.only else known
    if unknown := set(asked) - set(known):
        parser.error(f"no such question: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that the contenders end with this process
    with tempfile.TemporaryDirectory() as work:
        rounds, scale = (2, 0.25) if options.quick else (options.rounds, 1.0)
        streams = tuple(map(int, options.streams.split(",")))
        setup = Setup(Path(work), rounds, scale, LIBRARIES[options.engine], streams)
        for name in asked:
            QUESTIONS[name](setup)


if __name__ == "__main__":
    main()
