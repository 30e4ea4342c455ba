"""Prefill and decode: the stack and our engine's loop against bare mlx-lm, and against mlx_lm.server."""

from collections.abc import Sequence
from functools import partial

from bench.contenders import Generate, bare, engine, mlx_server
from bench.engine_setup import Ask, Setup, over_http
from bench.figures import Measured, in_turn, ratios, spread

STREAMS = (1, 4, 8, 16)
PREFILL_TOKENS = 1024
"""Of the prompts of one measurement together."""
DECODE_TOKENS = 48
"""Of each stream."""
PAIRS = (("exo engine", "bare mlx-lm"), ("exo", "bare mlx-lm"), ("exo", "mlx_lm.server"))


def speed(setup: Setup) -> None:
    """Print tokens per second of each, and the ratios of each round."""
    with (
        bare(setup.folder, setup.work) as theirs,
        engine(setup.folder, setup.work) as ours,
        mlx_server(setup.folder, setup.work) as server,
        setup.stack() as stack,
    ):
        contenders: dict[str, Ask] = {
            "bare mlx-lm": by_tokens(setup, theirs),
            "exo engine": by_tokens(setup, ours),
            "mlx_lm.server": over_http(server, str(setup.folder)),
            "exo": over_http(stack, setup.model),
        }
        for streams in STREAMS:
            for name, measure in (("prefill", prefill), ("decode", decode)):
                measures = {who: partial(measure, setup, ask, streams) for who, ask in contenders.items()}
                report(f"{name}, {streams} streams", in_turn(measures, setup.rounds))


def by_tokens(setup: Setup, generate: Generate) -> Ask:
    """Asks a process that takes tokens."""
    return lambda questions, max_tokens: generate([setup.prompt(question) for question in questions], max_tokens)


def prefill(setup: Setup, ask: Ask, streams: int) -> Measured:
    """Prompt tokens per second: of each answer only the first token is generated."""
    questions = [setup.text(setup.tokens(PREFILL_TOKENS) // streams) for _ in range(streams)]
    return Measured(sum(len(setup.prompt(question)) for question in questions), ask(questions, 1).seconds)


def decode(setup: Setup, ask: Ask, streams: int) -> Measured:
    """Output tokens per second, with the prefill of some 20 tokens a stream in it."""
    return ask([setup.story() for _ in range(streams)], setup.tokens(DECODE_TOKENS))


def report(what: str, found: dict[str, list[Measured]], pairs: Sequence[tuple[str, str]] = PAIRS) -> None:
    """Print the speeds, and the ratios round by round."""
    print(f"\n{what}")
    speeds = {name: [one.speed for one in measured] for name, measured in found.items()}
    for name in found:
        print(f"  {name:14} {spread(speeds[name], '.1f')} tokens/s")
    for ours, theirs in pairs:
        print(f"  {ours + ' / ' + theirs:28} {spread(ratios(speeds[ours], speeds[theirs]), '.3f')}", flush=True)
