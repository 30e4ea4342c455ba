"""What a schema costs: decode speed with structured output against free text, alone and side by side."""

import asyncio
from collections.abc import Sequence
from functools import partial

from bench.engine_setup import Setup
from bench.figures import in_turn, ratios, spread
from bench.streaming import ask_all, chat

TOKENS = 96
STREAMS = (1, 8)
SCHEMA = {
    "type": "object",
    "properties": {
        "ships": {
            "type": "array",
            "minItems": 100,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "tons": {"type": "integer"}, "sails": {"type": "boolean"}},
                "required": ["name", "tons", "sails"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["ships"],
    "additionalProperties": False,
}
"""Longer than any answer that is asked for, so that each ends at its limit."""
FORMAT = {"type": "json_schema", "json_schema": {"name": "harbour", "strict": True, "schema": SCHEMA}}


def structured(setup: Setup) -> None:
    """Print the decode speeds of a stream, and the ratios of each round."""
    with setup.stack() as url:
        for streams in STREAMS:
            kinds = {"free": [False] * streams, "structured": [True] * streams}
            if streams > 1:
                kinds["half and half"] = [number % 2 == 0 for number in range(streams)]
            found = in_turn({name: partial(speed, setup, url, kind) for name, kind in kinds.items()}, setup.rounds)
            print(f"\ndecode speed of {streams} streams together")
            for name, speeds in found.items():
                ratio = spread(ratios(speeds, found["free"]), ".3f")
                print(f"  {name:14} {spread(speeds, '.1f')} tokens/s, of free {ratio}", flush=True)


def speed(setup: Setup, url: str, with_schema: Sequence[bool]) -> float:
    """Tokens per second of all streams, each from its first token to its last."""
    tokens = setup.tokens(TOKENS)
    bodies = [
        chat(setup.model, setup.story(), tokens, response_format=FORMAT if schema else None) for schema in with_schema
    ]
    return sum(reply.decode_speed for reply in asyncio.run(ask_all(url, bodies)))
