"""What changes a request's logits before a token is drawn.

A processor is what mlx-lm's GenerationBatch calls for one row: it takes the tokens so far, the prompt's included, and
the logits [1, vocabulary] of the next one, and returns the logits to go on with. What it costs beyond a copy of the row
is by the tokens that it looks back on.
"""

from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx
from mlx_lm.sample_utils import make_repetition_penalty

from exo.domain.sampling import SamplingParams

LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


def penalties(params: SamplingParams, prompt_tokens: int) -> list[LogitsProcessor]:
    """Biases and penalties in the order in which they work: bias, repetition, frequency and presence.

    Repetition counts the last tokens, the prompt's too, as mlx-lm does; frequency and presence count what has been
    generated, as OpenAI's do: `logit - count * frequency_penalty - (count > 0) * presence_penalty`.
    """
    made: list[LogitsProcessor] = []
    if params.logit_bias:
        made.append(_Bias(params.logit_bias))
    if params.repetition_penalty != 1:
        make = cast(Callable[[float, int], LogitsProcessor], make_repetition_penalty)
        made.append(make(params.repetition_penalty, params.repetition_context))
    if params.frequency_penalty or params.presence_penalty:
        made.append(_Generated(params, prompt_tokens))
    return made


class _Bias:
    """Adds to the logits of some tokens; of those that the model has, since MLX does not look where it writes."""

    __slots__ = ("_bias",)

    def __init__(self, bias: Sequence[tuple[int, float]]) -> None:
        self._bias = bias

    def __call__(self, context: mx.array, logits: mx.array) -> mx.array:
        known = [(token, value) for token, value in self._bias if token < logits.shape[-1]]
        if not known:
            return logits
        tokens, values = zip(*known, strict=True)
        return logits.at[:, mx.array(list(tokens))].add(mx.array(list(values), logits.dtype))


class _Generated:
    """Frequency and presence penalty."""

    __slots__ = ("_frequency", "_presence", "_prompt_tokens")

    def __init__(self, params: SamplingParams, prompt_tokens: int) -> None:
        self._frequency = params.frequency_penalty
        self._presence = params.presence_penalty
        self._prompt_tokens = prompt_tokens

    def __call__(self, context: mx.array, logits: mx.array) -> mx.array:
        generated = context[self._prompt_tokens :]
        if generated.size == 0:
            return logits
        logits = logits.at[:, generated].subtract(self._frequency)
        # The values of a token that comes twice are the same, so it does not matter which of them is written.
        logits[:, generated] = logits[:, generated] - self._presence
        return logits
