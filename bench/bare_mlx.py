"""mlx-lm by itself in one process: the yardstick for everything around it. It takes orders (`bench.orders`)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from bench.orders import take_orders
from exo.runner.engines.mlx.blas import bind_fast_blas


def main() -> None:
    """Load the model and answer until standard input ends."""
    folder, cache = Path(sys.argv[1]), Path(sys.argv[2])
    bind_fast_blas(cache)
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.utils import load

    model, tokenizer = load(str(folder))[:2]
    generator = BatchGenerator(model, stop_tokens=[[token] for token in cast("set[int]", tokenizer.eos_token_ids)])

    def tokens(prompts: list[list[int]], max_tokens: int) -> Iterator[int]:
        generator.insert(prompts, [max_tokens] * len(prompts))
        while responses := generator.next_generated():
            yield from (response.uid for response in responses)

    take_orders(tokens)


if __name__ == "__main__":
    main()
