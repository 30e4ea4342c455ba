"""The log-probabilities that a model gave to tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx


@dataclass(frozen=True, slots=True)
class Ranked:
    """Of one position: the logprob of the token that was chosen, and the likeliest tokens with theirs."""

    chosen: float
    top: tuple[tuple[int, float], ...]
    """The likeliest first; of equal ones, the lower number first."""


@dataclass(frozen=True, slots=True)
class Position:
    """One row to be told about."""

    logits: mx.array
    """[vocabulary], normalized or not."""
    token: int
    """The one that was chosen."""
    count: int
    """How many of the likeliest are wanted."""


def rank(positions: Sequence[Position]) -> list[Ranked]:
    """What is to be told of each position, computed in one go and waited for."""
    rows = mx.stack([position.logits for position in positions]).astype(mx.float32)
    logprobs = rows - mx.logsumexp(rows, axis=-1, keepdims=True)
    chosen = mx.take_along_axis(logprobs, mx.array([[position.token] for position in positions]), axis=-1)
    size = rows.shape[-1]
    first = size - max(1, min(size, max(position.count for position in positions)))
    tokens = mx.argpartition(logprobs, kth=first, axis=-1)[:, first:]
    values = mx.take_along_axis(logprobs, tokens, axis=-1)
    mx.eval(chosen, tokens, values)
    told = zip(positions, _numbers(chosen), _numbers(tokens), _numbers(values), strict=True)
    return [Ranked(one[0], _sorted(top, likely)[: position.count]) for position, one, top, likely in told]


class ModelLogits:
    """Keeps a request's logits as they are before anything changes them.

    A processor that comes before all others. mlx-lm hands a token out one step after it was drawn, so that the logits
    of the step before are the ones that belong to it.
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: mx.array | None = None
        self._now: mx.array | None = None

    def __call__(self, context: mx.array, logits: mx.array) -> mx.array:
        """`logits` as they are; others may write into them afterwards, so what is kept is an array of its own."""
        self._before, self._now = self._now, logits[0]
        return logits

    def of_last_token(self) -> mx.array | None:
        """The logits [vocabulary] that the token handed out last was drawn from; None before the first."""
        return self._before


def _numbers(rows: mx.array) -> list[list[Any]]:
    return cast(list[list[Any]], rows.tolist())


def _sorted(tokens: list[int], values: list[float]) -> tuple[tuple[int, float], ...]:
    return tuple(sorted(zip(tokens, values, strict=True), key=lambda pair: (-pair[1], pair[0])))
