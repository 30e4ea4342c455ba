"""A process that generates on orders, so that what is compared differs in nothing but what generates.

In: {"prompts": [[token, ...], ...], "max_tokens": n}, a line each. Out: {"tokens": n, "seconds": s, "first": s}, as
`Measured` has them. The first line out is "ready".
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Iterator

Tokens = Callable[[list[list[int]], int], Iterator[Hashable]]
"""Called with prompts and the most tokens for each: for every token that comes, what names its request."""


def take_orders(tokens: Tokens) -> None:
    """Answers until standard input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(_measured(tokens, order["prompts"], order["max_tokens"])), flush=True)


def _measured(tokens: Tokens, prompts: list[list[int]], max_tokens: int) -> dict[str, float]:
    began = time.perf_counter()
    count, firsts = 0, dict[Hashable, float]()
    for request in tokens(prompts, max_tokens):
        count += 1
        if request not in firsts:
            firsts[request] = time.perf_counter() - began
    return {"tokens": count, "seconds": time.perf_counter() - began, "first": statistics.mean(firsts.values())}
