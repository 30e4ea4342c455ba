"""Our engine by itself in one process. It takes orders (`bench.orders`).

Several ranks of one model are as many such processes, which get the same orders.
"""

import argparse
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import get_args

from bench.orders import take_orders
from exo.domain.ids import ModelId, TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import EngineName, Shard, Sharding
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
    parser.add_argument("--engine", choices=get_args(EngineName), default="mlx")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ports", default="0", help="of all ranks, separated by commas")
    parser.add_argument("--sharding", default="pipeline")
    options = parser.parse_args()
    addresses = tuple(f"127.0.0.1:{port}" for port in options.ports.split(","))
    engine = make_engine(options.engine, options.cache, ThreadShare(options.threads))
    if len(addresses) > 1:
        engine.join(Peers(options.rank, addresses, "ring"))
    shard = _shard(options.folder, options.rank, len(addresses), options.sharding)
    engine.load(shard, options.folder, lambda done, total: None)
    numbers = count()
    take_orders(lambda prompts, max_tokens: _tokens(engine, next(numbers), prompts, max_tokens))


def _shard(folder: Path, rank: int, size: int, sharding: Sharding) -> Shard:
    """Equal parts, where layers are divided."""
    whole = builders.whole(card_from_folder(folder, ModelId("bench/model")))
    return builders.shards(whole, sharding, size)[rank]


def _tokens(engine: Engine, number: int, prompts: list[list[int]], max_tokens: int) -> Iterator[TaskId]:
    """Whose each token is. Raises RuntimeError where a request failed."""
    for index, prompt in enumerate(prompts):
        engine.submit(TaskId(f"{number}-{index}"), prompt, SamplingParams(temperature=0, max_tokens=max_tokens))
    while engine.in_flight:
        for output in engine.step():
            if isinstance(output, FailedOutput):
                raise RuntimeError(output.message)
            if isinstance(output, TokenOutput):
                yield output.task_id


if __name__ == "__main__":
    main()
