"""The time to first token when a 2,000-token beginning is known, and when it is not."""

import asyncio
from functools import partial

from bench.engine_setup import Setup
from bench.figures import spread
from bench.streaming import Reply, ask_all, chat

PREFIX_TOKENS = 2000


def prefix(setup: Setup) -> None:
    """Print both times of exo and of the library's server."""
    found = setup.servers_in_turn(partial(miss_and_hit, setup))
    print(f"\ntime to first token with a common beginning of {setup.tokens(PREFIX_TOKENS):,} tokens")
    for name, pairs in found.items():
        cached = f"{pairs[0][1].cached_tokens} of {pairs[0][1].prompt_tokens} tokens from the cache"
        print(f"  {name:14} miss {spread([miss.first for miss, _ in pairs], '.2f')} s")
        print(f"  {'':14} hit  {spread([hit.first for _, hit in pairs], '.3f')} s, {cached}")
        print(f"  {'':14} sooner by {spread([miss.first / hit.first for miss, hit in pairs], '.1f')} times", flush=True)


def miss_and_hit(setup: Setup, url: str, model: str) -> tuple[Reply, Reply]:
    """Two questions, one after the other, about one text that is new to the server."""
    text = setup.text(setup.tokens(PREFIX_TOKENS))
    bodies = [chat(model, question, 4, system=text) for question in ("Who wrote it down?", "What stood over the sea?")]
    miss, hit = (asyncio.run(ask_all(url, [body]))[0] for body in bodies)
    return miss, hit
