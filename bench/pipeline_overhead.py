"""What does the whole stack add to the time to first token?

The scripted engine computes nothing: what is left is everything around an engine. Beside it, in turn, is a request that
only the web server answers. `bench.engine` has the speed of the stack with a real engine.

usage: python -m bench.pipeline_overhead [--requests N]
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from bench.contenders import exo
from bench.figures import percentiles
from bench.streaming import Wire


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the whole stack adds to the time to first token.")
    parser.add_argument("--requests", type=int, default=500, help="requests to measure it with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        first_token(Path(work), options.requests)


def first_token(work: Path, requests: int) -> None:
    """The time to first token of an engine that takes none, beside a request that only the web server answers."""
    with exo(work, engine="scripted", default_model="exo/scripted") as url:
        trips, firsts = asyncio.run(first_tokens(url, requests))
    print(f"\n{requests} requests, one after the other")
    print(f"  GET /health                {percentiles(trips)}")
    print(f"  added time to first token  {percentiles(firsts)}")


async def first_tokens(url: str, requests: int) -> tuple[list[float], list[float]]:
    """Seconds of a round trip and of a first token, in turn, on one connection; the first twenty are not counted."""
    wire = await Wire.open(url)
    measured = [
        (await wire.round_trip(), await wire.first_chunk("exo/scripted", "one two three")) for _ in range(requests + 20)
    ][20:]
    return [trip for trip, _ in measured], [first for _, first in measured]


if __name__ == "__main__":
    main()
