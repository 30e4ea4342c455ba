"""What does the whole stack cost, against the engine by itself and against mlx_lm.server?

All three load the same model and use the same BLAS with one thread; they are measured in turn, round after round, while
the other two idle. Printed are tokens/s (output tokens, over the time from the first request to the last token, so that
prefill is in it) and the ratios of each round, as median and range. Then the time to first token that the stack adds,
with the scripted engine, which computes nothing.

usage: python -m bench.pipeline_overhead [--rounds N] [--tokens N] [--requests N]
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.contenders import bare, exo, mlx_server
from bench.figures import Measured, in_turn, percentiles, ratios, spread
from bench.streaming import Wire, stream_all
from exo.models.catalog import embedded
from exo.models.store import Store
from exo.runner.tokenizer import HuggingFaceTokenizer

TOPICS = ("the sea", "a mountain", "the railway", "a garden", "the moon", "a market", "the desert", "an old house")
MODELS = Path(__file__).parent.parent / "build" / "test-models"

Measure = Callable[[int], Measured]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the whole stack costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96, help="tokens to generate per stream")
    parser.add_argument("--requests", type=int, default=500, help="requests to measure the time to first token with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        throughput(Path(work), options.rounds, options.tokens)
        first_token(Path(work), options.requests)


def throughput(work: Path, rounds: int, max_tokens: int) -> None:
    """Tokens/s of the three, for 1 and for 8 streams."""
    folder = Store(MODELS).prepare(embedded())
    tokenizer = HuggingFaceTokenizer(folder)
    questions = [f"Write a long story about {topic}." for topic in TOPICS]
    prompts = [tokenizer.encode_chat([{"role": "user", "content": question}]) for question in questions]
    with (
        bare(folder, work) as generate,
        mlx_server(folder, work) as server_url,
        exo(work, model_folders=str(MODELS), cpu_threads="1") as exo_url,
    ):
        contenders: dict[str, Measure] = {
            "bare mlx-lm": lambda streams: generate(prompts[:streams], max_tokens),
            "mlx_lm.server": lambda streams: asked(server_url, str(folder), questions[:streams], max_tokens),
            "exo": lambda streams: asked(exo_url, embedded().model_id, questions[:streams], max_tokens),
        }
        for measure in contenders.values():
            measure(1)  # not counted: whatever is compiled, is compiled here
        for streams in (1, 8):
            report(streams, in_turn({name: partial(measure, streams) for name, measure in contenders.items()}, rounds))


def asked(url: str, model: str, questions: list[str], max_tokens: int) -> Measured:
    """All questions side by side over HTTP."""
    return asyncio.run(stream_all(url, model, questions, max_tokens))


def report(streams: int, found: dict[str, list[Measured]]) -> None:
    """Print the speeds, and the ratios round by round."""
    print(f"\n{streams} stream{'s' if streams > 1 else ''}")
    for name, measured in found.items():
        speeds = [one.speed for one in measured]
        print(f"  {name:14} {spread(speeds, '.1f')} tokens/s, {measured[0].tokens} tokens a round")
    for base in ("bare mlx-lm", "mlx_lm.server"):
        ours, theirs = ([one.speed for one in found[name]] for name in ("exo", base))
        print(f"  exo / {base:14} {spread(ratios(ours, theirs), '.3f')}")


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
