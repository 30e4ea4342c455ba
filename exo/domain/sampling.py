"""How the next token is chosen, and when a generation ends."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from exo.domain.base import Frozen
from exo.domain.constraint import Constraint
from exo.domain.logprobs import TOP_LOGPROBS_MOST

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "cancelled", "error"]


INTEGER_MOST = 2**31 - 1
"""MLX's integers have 32 bits."""
SEEDS = 2**64
"""So many different ones; a larger or a negative one stands for its rest."""
TEMPERATURE_MOST = 2.0
TOP_P_LEAST = 1e-6
"""Stands for a `top_p` of 0, which clients may send: only the likeliest token is left."""
REPETITION_PENALTY_LEAST = 0.01
"""A logit is divided by it, and has to stay a number in 16 bits."""
REPETITION_PENALTY_MOST = 10.0
PENALTY_MOST = 2.0
BIAS_MOST = 100.0
BIASES_MOST = 1024
"""Each is written at each token."""
REPETITION_CONTEXT = 20
"""Tokens that a repetition penalty looks back on; mlx-lm's default."""

Count = Annotated[int, Field(ge=1, le=INTEGER_MOST)]
"""Of tokens."""
TopK = Annotated[int, Field(ge=0, le=INTEGER_MOST)]
Penalty = Annotated[float, Field(ge=-PENALTY_MOST, le=PENALTY_MOST)]
RepetitionPenalty = Annotated[float, Field(ge=REPETITION_PENALTY_LEAST, le=REPETITION_PENALTY_MOST)]
TokenNumber = Annotated[int, Field(ge=0, le=INTEGER_MOST)]
Bias = Annotated[float, Field(ge=-BIAS_MOST, le=BIAS_MOST)]


class SamplingParams(Frozen):
    """Parameters of one generation, as the engine gets them.

    They work in this order: penalties and biases on the logits, the constraint, temperature, top_k, top_p, min_p, the
    draw. The defaults are those that leave the model's own distribution as it is.
    """

    temperature: Annotated[float, Field(ge=0, le=TEMPERATURE_MOST)] = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Only the likeliest tokens that together reach this probability."""
    top_k: TopK = 0
    """Only so many of the likeliest tokens; 0 is all."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Only tokens at least this likely, as a share of the likeliest one's probability."""
    repetition_penalty: RepetitionPenalty = 1.0
    """Divides the positive logits of recent tokens, and multiplies the negative ones."""
    repetition_context: Count = REPETITION_CONTEXT
    """How many tokens are recent, the prompt's included."""
    presence_penalty: Penalty = 0.0
    """Taken off the logit of every token that has been generated."""
    frequency_penalty: Penalty = 0.0
    """Taken off a token's logit for each time that it has been generated."""
    logit_bias: Annotated[tuple[tuple[TokenNumber, Bias], ...], Field(max_length=BIASES_MOST)] = ()
    """Pairs of a token and what is added to its logit."""
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] | None = None
    """The same seed draws the same, whatever runs beside it."""
    max_tokens: Count | None = None
    """None: up to the model's context."""
    stops_at_context: bool = False
    """Whether `max_tokens` that the context has no room for stand for what it has; else the request is refused."""
    context: Count | None = None
    """Most tokens of prompt and answer together, where that is less than the model's context."""
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
