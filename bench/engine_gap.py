"""How long a running stream stands still while a 4,000-token prompt comes in."""

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial

import httpx

from bench.engine_setup import Setup
from bench.figures import percentiles, spread
from bench.streaming import Reply, chat, stream_reply

PROMPT_TOKENS = 4000
"""SmolLM2's context is 8,192 tokens here, as its file says."""
BEFORE = 16
"""Pieces of the running stream before the prompt is sent."""


@dataclass(frozen=True)
class Disturbed:
    """A stream before, and while, another's prompt was computed."""

    before: list[float]
    """Gaps between two pieces, in seconds."""
    during: list[float]
    first: float
    """Seconds until the other's first token."""


def gap(setup: Setup) -> None:
    """Print the gaps of exo and of the library's server."""
    found = setup.servers_in_turn(partial(disturbed, setup))
    print(f"\ngaps between the tokens of a stream while a prompt of {setup.tokens(PROMPT_TOKENS):,} tokens comes in")
    for name, rounds in found.items():
        before = [one for measured in rounds for one in measured.before]
        during = [one for measured in rounds for one in measured.during]
        print(f"  {name:14} before {percentiles(before)}")
        print(f"  {'':14} during {percentiles(during)}, longest {max(during) * 1e3:.0f} ms, {len(during)} tokens")
        print(f"  {'':14} the prompt's first token after {spread([one.first for one in rounds], '.1f')} s", flush=True)


def disturbed(setup: Setup, url: str, model: str) -> Disturbed:
    """One running stream that is cut off when the other's first token has come."""
    return asyncio.run(_disturbed(setup, url, model))


async def _disturbed(setup: Setup, url: str, model: str) -> Disturbed:
    running, other = Reply(), Reply()
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        stream = asyncio.create_task(stream_reply(client, chat(model, setup.story(), 2000), running))
        while len(running.times) < BEFORE and not stream.done():  # noqa: ASYNC110  a list grows, not an event
            await asyncio.sleep(0.01)
        await stream_reply(client, chat(model, setup.text(setup.tokens(PROMPT_TOKENS)), 1), other)
        done = running.times[-1] if stream.done() else other.times[0]  # it may have come to its own end
        stream.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stream
    before, during = running.gaps(0.0, other.asked_at), running.gaps(other.asked_at, done)
    return Disturbed(before, [*during, done - max(at for at in running.times if at <= done)], other.first)
