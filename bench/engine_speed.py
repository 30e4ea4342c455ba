"""Prefill and decode: the stack and our engine's loop against the library by itself, and against its server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from bench.contenders import Generate, bare, engine
from bench.engine_setup import Ask, Setup, over_http
from bench.figures import Measured, in_turn, ratios, spread

PREFILL_TOKENS = 1024
"""Of the prompts of one measurement together."""
DECODE_TOKENS = 48
"""Of each stream."""

C = TypeVar("C")


def speed(setup: Setup) -> None:
    """Print tokens per second of each, the mean times to first token, and the ratios of each round."""
    library = setup.library
    with (
        bare(library, setup.folder, setup.work) as theirs,
        engine(library.engine, setup.folder, setup.work) as ours,
        library.server(setup.folder, setup.work) as server,
        setup.stack() as stack,
    ):
        contenders: dict[str, Ask] = {
            library.bare_name: by_tokens(setup, theirs),
            "exo engine": by_tokens(setup, ours),
            library.server_name: over_http(server, str(setup.folder)),
            "exo": over_http(stack, setup.model),
        }
        pairs = [("exo engine", library.bare_name), ("exo", library.bare_name), ("exo", library.server_name)]
        compare(setup, contenders, {"prefill": prefill, "decode": decode}, setup.streams, pairs)


def compare(
    setup: Setup,
    contenders: Mapping[str, C],
    measures: Mapping[str, Callable[[Setup, C, int], Measured]],
    streams: Sequence[int],
    pairs: Sequence[tuple[str, str]],
) -> None:
    """Measure the contenders in turn, with each number of streams, and print each measure's figures.

    `pairs` are of contenders whose ratios are printed.
    """
    for count in streams:
        for name, measure in measures.items():
            found = {who: partial(measure, setup, one, count) for who, one in contenders.items()}
            report(f"{name}, {count} streams", in_turn(found, setup.rounds), pairs)


def by_tokens(setup: Setup, generate: Generate) -> Ask:
    """Asks a process that takes tokens."""
    return lambda questions, max_tokens: generate([setup.prompt(question) for question in questions], max_tokens)


def prefill(setup: Setup, ask: Ask, streams: int) -> Measured:
    """Prompt tokens per second: of each answer only the first token is generated."""
    questions = [setup.text(setup.tokens(PREFILL_TOKENS) // streams) for _ in range(streams)]
    return replace(ask(questions, 1), tokens=sum(len(setup.prompt(question)) for question in questions))


def decode(setup: Setup, ask: Ask, streams: int) -> Measured:
    """Output tokens per second, with the prefill of some 20 tokens a stream in it."""
    return ask([setup.story() for _ in range(streams)], setup.tokens(DECODE_TOKENS))


def report(what: str, found: dict[str, list[Measured]], pairs: Sequence[tuple[str, str]]) -> None:
    """Print the speeds, the mean time to first token where it is known, and the ratios of both round by round."""
    print(f"\n{what}")
    speeds = {name: [one.speed for one in measured] for name, measured in found.items()}
    firsts = {name: [one.first for one in measured if one.first is not None] for name, measured in found.items()}
    for name in found:
        first = f", first tokens after {spread(firsts[name], '.3f')} s" if firsts[name] else ""
        print(f"  {name:14} {spread(speeds[name], '.1f')} tokens/s{first}")
    for ours, theirs in pairs:
        known = firsts[ours] and firsts[theirs]
        first = f", first tokens {spread(ratios(firsts[ours], firsts[theirs]), '.3f')}" if known else ""
        print(f"  {ours + ' / ' + theirs:28} {spread(ratios(speeds[ours], speeds[theirs]), '.3f')}{first}", flush=True)
