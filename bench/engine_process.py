"""Our MLX engine by itself in one process, driven by lines of JSON: the same orders as `bare_mlx` takes.

In: {"prompts": [[token, ...], ...], "max_tokens": n}. Out: {"tokens": n, "seconds": s}. The first line out is "ready".
Several ranks of one model are as many such processes, which get the same orders; rank 0 answers.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from exo.domain.ids import ModelId, NodeId, RunnerId, TaskId
from exo.domain.sampling import SamplingParams
from exo.domain.shard import Shard
from exo.models.folder import card_from_folder
from exo.runner.engines import make_engine
from exo.runner.engines.base import Engine, FailedOutput, TokenOutput
from exo.runner.engines.threads import ThreadShare


def main() -> None:
    """Load the model and answer until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    engine = make_engine("mlx", options.cache, ThreadShare(options.threads))
    engine.load(_whole(options.folder), options.folder, lambda done, total: None)
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        began = time.perf_counter()
        tokens = _generate(engine, number, order["prompts"], order["max_tokens"])
        print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - began}), flush=True)


def _whole(folder: Path) -> Shard:
    card = card_from_folder(folder, ModelId("bench/model"))
    return Shard(
        runner_id=RunnerId("runner"),
        node_id=NodeId("node"),
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=card.layers,
        sharding="pipeline",
        card=card,
    )


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
