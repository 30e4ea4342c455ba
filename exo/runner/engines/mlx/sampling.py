"""How the next token is drawn. A sampler takes log-probabilities [requests, vocabulary] and returns tokens [requests].

mlx-lm samples a whole batch in one call where all of its requests share one sampler object, else row by row. Greedy
requests share one, and so do unseeded ones of the same temperature and top_p, whose rows are drawn independently.
"""

import os
from collections.abc import Callable

import mlx.core as mx

from exo.domain.sampling import SamplingParams

Sampler = Callable[[mx.array], mx.array]

SHARED_LIMIT = 64
"""Unseeded samplers that are remembered. Forgetting one only costs a batched call."""


class Samplers:
    """Makes samplers for one engine."""

    __slots__ = ("_shared",)

    def __init__(self) -> None:
        self._shared: dict[tuple[float, float], Sampler] = {}

    def sampler(self, params: SamplingParams) -> Sampler:
        """The sampler for one request; a seeded one is its own and draws the same whatever runs beside it."""
        if params.temperature == 0:
            return greedy
        if params.seed is not None:
            return RandomSampler(params.temperature, params.top_p, params.seed)
        key = (params.temperature, params.top_p)
        if key not in self._shared:
            if len(self._shared) >= SHARED_LIMIT:
                self._shared.clear()
            self._shared[key] = RandomSampler(*key, int.from_bytes(os.urandom(8)))
        return self._shared[key]


def greedy(logprobs: mx.array) -> mx.array:
    """The likeliest token."""
    return mx.argmax(logprobs, axis=-1)


class RandomSampler:
    """Temperature, then nucleus, then a draw with a key of its own, split once per call."""

    __slots__ = ("_key", "_temperature", "_top_p")

    def __init__(self, temperature: float, top_p: float, seed: int) -> None:
        self._temperature = temperature
        self._top_p = top_p
        self._key = mx.random.key(seed)

    def __call__(self, logprobs: mx.array) -> mx.array:
        """One token a row, drawn independently."""
        self._key, now = mx.random.split(self._key)
        logits = logprobs.astype(mx.float32) / self._temperature
        if self._top_p < 1:
            logits = nucleus(logits, self._top_p)
        return mx.random.categorical(logits, key=now)


def nucleus(logits: mx.array, top_p: float) -> mx.array:
    """`logits` with -inf for all tokens after the likeliest that together reach the probability `top_p`.

    The likeliest token always stays. Holtzman et al., https://arxiv.org/abs/1904.09751.
    """
    ascending = mx.sort(logits, axis=-1)
    likelier = mx.cumsum(mx.softmax(ascending, axis=-1), axis=-1, reverse=True, inclusive=False)
    least = mx.min(mx.where(likelier < top_p, ascending, mx.inf), axis=-1, keepdims=True)
    return mx.where(logits < least, -mx.inf, logits)
