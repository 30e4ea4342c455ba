"""Texts that are to become vectors, as every engine takes them and tells of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exo.errors import Rejected

Row = NDArray[np.float32]
"""The numbers of one vector."""


def within_context(
    inputs: Sequence[Sequence[int]], context: int, *, truncate: bool, ending: Sequence[int] = ()
) -> list[Sequence[int]]:
    """The tokens of each text, cut to `context` where they may be: at its end, before the `ending` that the tokenizer
    gives every text.

    Raises Rejected, naming the text, where one has none, or more tokens than `context` and may not be cut.
    """
    for index, tokens in enumerate(inputs):
        param = f"input[{index}]"
        if not tokens:
            raise Rejected(f"{param}: it has no tokens", code="empty_prompt", param=param)
        if len(tokens) > context and not truncate:
            reason = f"{param}: the context is {context} tokens, and it has {len(tokens)}"
            raise Rejected(reason, code="context_length_exceeded", param=param)
    return [_cut(tokens, context, ending) for tokens in inputs]


def _cut(tokens: Sequence[int], context: int, ending: Sequence[int]) -> Sequence[int]:
    """Models that were trained to make a vector of a text's last token expect it to be the one that ends texts."""
    if len(tokens) <= context:
        return tokens
    kept = context - len(ending)
    if kept < 1 or list(tokens[len(tokens) - len(ending) :]) != list(ending):
        return tokens[:context]
    return [*tokens[:kept], *ending]


def unit(row: Row, dimensions: int) -> bytes | None:
    """The first `dimensions` numbers, scaled to a length of 1: float32, little-endian. None where they have no length,
    or are no numbers."""
    beginning = row[:dimensions].astype(np.float64)
    length = float(np.linalg.norm(beginning))
    if not np.isfinite(length) or length == 0:
        return None
    return (beginning / length).astype("<f4").tobytes()
