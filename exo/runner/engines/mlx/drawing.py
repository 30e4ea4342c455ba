"""Draws tokens, one a row, each row by parameters and a key of its own. Pure, but for MLX's laziness.

A token is drawn by Gumbel noise: the argmax of logits plus noise falls on each token with its probability (Gumbel 1954;
https://arxiv.org/abs/1611.01144, section 2). The noise of a token depends on the row's key and on the token alone, so
a draw is the same whatever other rows there are, in which order they stand, and on which machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

GREEDY_BELOW = 1e-5
"""Temperatures that leave no chance to any but the likeliest token; divided by less, logits would overflow."""

CANDIDATES = 2048
"""The likeliest tokens that filters look at. To sort a whole vocabulary for each token takes longer than a small model
does to compute it; what lies beyond is of no weight wherever a filter is of use."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row's token is drawn."""

    key: int
    """64 bits; another for each token."""
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def is_filtered(self) -> bool:
        """Whether only some tokens may be drawn."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


def draw(logits: mx.array, draws: Sequence[Draw]) -> mx.array:
    """A token for each row of `logits` [rows, vocabulary], which need not be normalized; [rows]."""
    greedy = [row for row, one in enumerate(draws) if one.is_greedy]
    filtered = [row for row, one in enumerate(draws) if not one.is_greedy and one.is_filtered]
    free = [row for row, one in enumerate(draws) if not one.is_greedy and not one.is_filtered]
    parts: list[mx.array] = []
    if greedy:
        parts.append(mx.argmax(_rows(logits, greedy), axis=-1))
    if filtered:
        parts.append(_draw_filtered(_rows(logits, filtered), [draws[row] for row in filtered]))
    if free:
        parts.append(_draw_free(_rows(logits, free), [draws[row] for row in free]))
    if len(parts) == 1:
        return parts[0]
    rows = [*greedy, *filtered, *free]
    return mx.concatenate(parts)[mx.array([rows.index(row) for row in range(len(rows))])]


def filtered(logits: mx.array, draws: Sequence[Draw]) -> tuple[mx.array, mx.array]:
    """The tokens that may be drawn, the likeliest first, and their logits divided by the temperature.

    Both [rows, candidates]; a token that may not be drawn has minus infinity. Each filter keeps the likeliest tokens up
    to some rank, the first one always: `top_k` so many; `top_p` the fewest that reach that share of the candidates'
    probability (Holtzman et al., https://arxiv.org/abs/1904.09751); `min_p` those at least that likely beside the
    first (https://arxiv.org/abs/2407.01082).
    """
    size = logits.shape[-1]
    count = min(CANDIDATES, size)
    scaled = _scaled(logits, draws)
    tokens = mx.argpartition(scaled, kth=size - count, axis=-1)[:, size - count :]
    values = mx.take_along_axis(scaled, tokens, axis=-1)
    order = mx.argsort(-values, axis=-1)
    tokens, values = mx.take_along_axis(tokens, order, axis=-1), mx.take_along_axis(values, order, axis=-1)
    weights = mx.exp(values - values[:, :1])
    likelier = mx.cumsum(weights, axis=-1, inclusive=False)
    kept = mx.arange(count)[None] < _column([one.top_k or count for one in draws])
    kept &= likelier < _column([one.top_p for one in draws]) * mx.sum(weights, axis=-1, keepdims=True)
    kept &= weights >= _column([one.min_p for one in draws])
    return tokens, mx.where(kept, values, -mx.inf)


def noise(keys: Sequence[int], tokens: mx.array) -> mx.array:
    """Gumbel noise of each row's tokens [rows, tokens], of float32. `tokens` may have one row for all."""
    low = mx.array([[key & 0xFFFFFFFF] for key in keys], dtype=mx.uint32)
    high = mx.array([[key >> 32] for key in keys], dtype=mx.uint32)
    bits = _mixed(_mixed(tokens.astype(mx.uint32) * mx.array(0x9E3779B9, mx.uint32) + low) ^ high)
    # 23 bits and a half, so that neither 0 nor 1 comes out and both logarithms are finite.
    uniform = ((bits >> 9).astype(mx.float32) + 0.5) * 2**-23
    return -mx.log(-mx.log(uniform))


def _draw_free(logits: mx.array, draws: Sequence[Draw]) -> mx.array:
    tokens = mx.arange(logits.shape[-1], dtype=mx.uint32)[None]
    return mx.argmax(_scaled(logits, draws) + noise([one.key for one in draws], tokens), axis=-1)


def _draw_filtered(logits: mx.array, draws: Sequence[Draw]) -> mx.array:
    tokens, values = filtered(logits, draws)
    drawn = mx.argmax(values + noise([one.key for one in draws], tokens), axis=-1, keepdims=True)
    return mx.take_along_axis(tokens, drawn, axis=-1)[:, 0]


def _scaled(logits: mx.array, draws: Sequence[Draw]) -> mx.array:
    return logits.astype(mx.float32) / _column([one.temperature for one in draws])


def _rows(logits: mx.array, rows: list[int]) -> mx.array:
    return logits if len(rows) == logits.shape[0] else logits[mx.array(rows)]


def _column(values: list[float] | list[int]) -> mx.array:
    return mx.array(values)[:, None]


def _mixed(bits: mx.array) -> mx.array:
    """32 bits that depend on all bits given. The constants: https://github.com/skeeto/hash-prospector, lowbias32."""
    bits = (bits ^ (bits >> 16)) * mx.array(0x7FEB352D, mx.uint32)
    bits = (bits ^ (bits >> 15)) * mx.array(0x846CA68B, mx.uint32)
    return bits ^ (bits >> 16)
