"""How the next token is chosen, and when a generation ends."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from exo.domain.base import Frozen
from exo.domain.constraint import Constraint
from exo.domain.logprobs import TOP_LOGPROBS_MOST

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "cancelled", "error"]


REPETITION_CONTEXT = 20
"""Tokens that a repetition penalty looks back on; mlx-lm's default."""


class SamplingParams(Frozen):
    """Parameters of one generation, as the engine gets them.

    They work in this order: penalties and biases on the logits, the constraint, temperature, top_k, top_p, min_p, the
    draw. The defaults are those that leave the model's own distribution as it is.
    """

    temperature: NonNegativeFloat = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Only the likeliest tokens that together reach this probability."""
    top_k: NonNegativeInt = 0
    """Only so many of the likeliest tokens; 0 is all."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Only tokens at least this likely, as a share of the likeliest one's probability."""
    repetition_penalty: PositiveFloat = 1.0
    """Divides the positive logits of recent tokens, and multiplies the negative ones."""
    repetition_context: PositiveInt = REPETITION_CONTEXT
    """How many tokens are recent, the prompt's included."""
    presence_penalty: float = 0.0
    """Taken off the logit of every token that has been generated."""
    frequency_penalty: float = 0.0
    """Taken off a token's logit for each time that it has been generated."""
    logit_bias: tuple[tuple[NonNegativeInt, float], ...] = ()
    """Pairs of a token and what is added to its logit."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    """The same seed draws the same, whatever runs beside it."""
    max_tokens: PositiveInt | None = None
    """None: up to the model's context."""
    stop: tuple[str, ...] = ()
    logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MOST)] | None = None
    """How many of the likeliest tokens are told at each position, beside the chosen one. None: nothing is told."""
    constraint: Constraint | None = None
    """What the answer must look like. Reasoning before it is free."""


class Usage(Frozen):
    """Tokens counted by the engine."""

    prompt_tokens: NonNegativeInt = 0
    completion_tokens: NonNegativeInt = 0
    cached_tokens: NonNegativeInt = 0
    reasoning_tokens: NonNegativeInt = 0
    """Of the completion's tokens, those that gave reasoning."""


class Timings(Frozen):
    """Seconds, measured by rank 0 from when it took the task."""

    wait: NonNegativeFloat = 0.0
    """From taking the task to the first prefill step."""
    prefill: NonNegativeFloat = 0.0
    """From there to the first token."""
    decode: NonNegativeFloat = 0.0
    """From the first token to the last."""
