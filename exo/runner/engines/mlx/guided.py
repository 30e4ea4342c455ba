"""Masks the tokens that would break a request's constraint."""

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
import numpy as np

from exo.runner.structured.guide import Guide


class Guided:
    """A processor that holds a request to its guide."""

    __slots__ = ("_guide", "_last_token", "_prompt_tokens")

    def __init__(self, guide: Guide, last_token: Callable[[], int], prompt_tokens: int) -> None:
        """`last_token` waits for the token that was drawn last."""
        self._guide = guide
        self._last_token = last_token
        self._prompt_tokens = prompt_tokens

    def __call__(self, context: mx.array, logits: mx.array) -> mx.array:
        """`logits` with minus infinity for what must not come next.

        The model is set going on this step before the last one's token is waited for, so that it computes while the
        grammar is asked.
        """
        mx.async_eval(logits)
        position = context.size - self._prompt_tokens
        if position > self._guide.taken:
            self._guide.take(self._last_token())
        elif position < self._guide.taken:
            # The step before broke off after its token was taken, and is made again.
            self._guide.undo()
        allowed = self._guide.allowed()
        return logits if allowed is None else _masked(logits, allowed)


def _masked(logits: mx.array, allowed: bytes) -> mx.array:
    """A model's vocabulary may be longer than its tokenizer's: what has no token must not come either."""
    size = logits.shape[-1]
    mask = mx.array(cast(Any, np.frombuffer(allowed.ljust(size, b"\0")[:size], dtype=np.uint8)))
    return mx.where(mask != 0, logits, mx.array(-mx.inf, logits.dtype))
