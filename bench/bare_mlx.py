"""mlx-lm by itself in one process, driven by lines of JSON: the yardstick for everything around it.

In: {"prompts": [[token, ...], ...], "max_tokens": n}. Out: {"tokens": n, "seconds": s}. The first line out is "ready".
"""

import json
import sys
import time
from pathlib import Path
from typing import cast

from exo.runner.engines.mlx.blas import bind_fast_blas


def main() -> None:
    """Load the model and answer until standard input ends."""
    folder, cache = Path(sys.argv[1]), Path(sys.argv[2])
    bind_fast_blas(cache)
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.utils import load

    model, tokenizer = load(str(folder))[:2]
    generator = BatchGenerator(model, stop_tokens=[[token] for token in cast("set[int]", tokenizer.eos_token_ids)])
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        began = time.perf_counter()
        generator.insert(order["prompts"], [order["max_tokens"]] * len(order["prompts"]))
        tokens = 0
        while responses := generator.next_generated():
            tokens += len(responses)
        print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
