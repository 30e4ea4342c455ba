"""How much sooner does the first token come where another instance prefills?

Two nodes of one machine, in turn: one whose MLX instance computes its prompts itself, and one whose MLX instance has
one on vLLM to prefill for it. Each prompt is new to all. Beside them what the way costs: a state of the same size that
is there already, through the same socket.

Both engines have to be installed, as `make run ENGINE=vllm` does it: python -m bench.prefill_elsewhere [--rounds N]
[--tokens N]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from bench.contenders import LIBRARIES
from bench.engine_setup import MODELS, Setup
from bench.figures import in_turn, ratios, spread
from bench.streaming import ask_all, chat
from exo.domain.ids import TaskId
from exo.domain.prefill import PrefillAttempt
from exo.models.catalog import embedded
from exo.runner.kv.fetching import fetch
from exo.runner.kv.form import AttentionState, Numbers, Piece
from exo.runner.kv.keys import new_key
from exo.runner.kv.serving import PrefillServer
from tests.stack import Stack, wait_until

LOADED = 180.0
"""Seconds for an instance to be ready."""
PATIENCE = 30.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The time to first token, prefilled here or there.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=900, help="of the prompt, about")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        setup = Setup(Path(work), options.rounds, 1.0, LIBRARIES["mlx"], (1,))
        with node(setup, "alone", "mlx") as alone, node(setup, "linked", "vllm", "mlx") as linked:
            report(setup, alone, linked, options.tokens)


@contextmanager
def node(setup: Setup, name: str, *engines: str) -> Generator[Stack]:
    """A node with an instance on each engine; of two, the first prefills for the second."""
    settings = {"engine": ",".join(engines), "default_model": "none", "model_folders": str(MODELS), "offline": "1"}
    stack = Stack(setup.work / name, **settings)
    try:
        stack.start()
        stack.wait_worker()
        placed = [place(stack, setup.model, engine) for engine in engines]
        if len(placed) == 2:
            done = stack.cli("link", *placed)
            if done.returncode:
                sys.exit(done.stderr)
        yield stack
    finally:
        stack.stop()


def place(stack: Stack, model: str, engine: str) -> str:
    """An instance's id, when it is ready."""
    done = stack.cli("place", model, "--engine", engine, timeout=LOADED)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.partition(":")[0]


def report(setup: Setup, alone: Stack, linked: Stack, tokens: int) -> None:
    """Print the figures of all rounds."""
    nodes = {"alone": alone, "linked": linked}
    for stack in nodes.values():
        first_token(setup, stack, tokens)  # what is compiled or allocated once is not counted
    measures = {name: partial(first_token, setup, stack, tokens) for name, stack in nodes.items()}
    found = in_turn(measures, setup.rounds)
    own, others = ([one.seconds for one in found[name]] for name in nodes)
    attempts = [attempt_of(one) for one in found["linked"]]
    moved = [transfer(attempts[0].tokens) for _ in range(setup.rounds)]
    way = [seconds for seconds, _ in moved]
    print(f"\nseconds to the first token on MLX, {attempts[0].tokens + 1} tokens of prompt, {setup.rounds} rounds")
    print(f"  prefilled by itself         {spread(own, '.2f')}")
    print(f"  prefilled by vLLM           {spread(others, '.2f')}")
    print(f"  ratio, round by round       {spread(ratios(others, own), '.2f')}")
    print(f"  until the state was there   {spread([one.seconds for one in attempts], '.2f')}")
    print(f"  the way alone, {moved[0][1] / 1e6:.1f} MB      {spread(way, '.3f')}")


@dataclass(frozen=True)
class FirstToken:
    """When it came, and what became of asking another instance."""

    seconds: float
    attempt: PrefillAttempt | None


def attempt_of(one: FirstToken) -> PrefillAttempt:
    """That of a prompt that was prefilled elsewhere. Raises RuntimeError for one that was not."""
    if one.attempt is None or one.attempt.error:
        raise RuntimeError(f"it was not prefilled elsewhere: {one.attempt}")
    return one.attempt


def first_token(setup: Setup, stack: Stack, tokens: int) -> FirstToken:
    """Of a new prompt."""
    began = time.time()
    (reply,) = asyncio.run(ask_all(stack.url, [chat(setup.model, setup.text(tokens), 4)]))
    traces = f"{stack.url}/v1/traces"

    def newest() -> dict[str, Any]:
        listed = httpx.get(traces, params={"limit": 1}).json()["data"]
        return listed[0] if listed and listed[0]["queued_at"] >= began else {}

    wait_until(lambda: bool(newest()), "the end in the log", PATIENCE)
    attempt = httpx.get(f"{traces}/{newest()['task_id']}").json()["prefill"]
    return FirstToken(reply.first, attempt and PrefillAttempt.model_validate(attempt))


def transfer(tokens: int) -> tuple[float, int]:
    """Seconds from asking for a state that is there to having it, and its bytes."""
    return asyncio.run(_transferred(tokens))


async def _transferred(tokens: int) -> tuple[float, int]:
    card = embedded()
    array = Numbers("float32", np.zeros((tokens, card.kv_heads, card.head_dim), "<f4"))
    server, key = PrefillServer(lambda _task_id: None), new_key()
    port = await server.start()
    outgoing = server.expect(TaskId("bench"), key)
    for layer in range(card.layers):
        outgoing(Piece(layer, AttentionState(array, array)))
    await asyncio.sleep(0)
    outgoing.done(tokens)
    began = time.perf_counter()
    state = await fetch("127.0.0.1", port, key, PATIENCE)
    seconds = time.perf_counter() - began
    await server.close()
    return seconds, state.nbytes


if __name__ == "__main__":
    main()
