"""Our MLX engine by itself in one process, driven by lines of JSON: the same orders as `bare_mlx` takes.

In: {"prompts": [[token, ...], ...], "max_tokens": n}. Out: {"tokens": n, "seconds": s}. The first line out is "ready".
Several ranks of one model are as many such processes, which get the same orders.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from exo.domain.ids import ModelId, TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard, Sharding
from exo.models.folder import card_from_folder
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, FailedOutput, TokenOutput
from exo.runner.engines.ranks import Peers
from exo.runner.engines.threads import ThreadShare
from tests import builders


def main() -> None:
    """Load the model and answer until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ports", default="0", help="of all ranks, separated by commas")
    parser.add_argument("--sharding", default="pipeline")
    options = parser.parse_args()
    addresses = tuple(f"127.0.0.1:{port}" for port in options.ports.split(","))
    engine = make_engine("mlx", options.cache, ThreadShare(options.threads))
    if len(addresses) > 1:
        engine.join(Peers(options.rank, addresses, "ring"))
    shard = _shard(options.folder, options.rank, len(addresses), options.sharding)
    engine.load(shard, options.folder, lambda done, total: None)
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        began = time.perf_counter()
        tokens = _generate(engine, number, order["prompts"], order["max_tokens"])
        print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - began}), flush=True)


def _shard(folder: Path, rank: int, size: int, sharding: Sharding) -> Shard:
    """Equal parts, where layers are divided."""
    whole = builders.whole(card_from_folder(folder, ModelId("bench/model")))
    return builders.shards(whole, sharding, size)[rank]


def _generate(engine: Engine, number: int, prompts: list[list[int]], max_tokens: int) -> int:
    """The tokens generated. Raises RuntimeError where a request failed."""
    for index, prompt in enumerate(prompts):
        engine.submit(TaskId(f"{number}-{index}"), prompt, SamplingParams(temperature=0, max_tokens=max_tokens))
    tokens = 0
    while engine.in_flight:
        for output in engine.step():
            if isinstance(output, FailedOutput):
                raise RuntimeError(output.message)
            tokens += isinstance(output, TokenOutput)
    return tokens


if __name__ == "__main__":
    main()
