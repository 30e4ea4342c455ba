"""How the next token is chosen, and when a generation ends."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from exo.domain.base import Frozen

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "cancelled", "error"]


class SamplingParams(Frozen):
    """Parameters of one generation, as the engine gets them."""

    temperature: NonNegativeFloat = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    max_tokens: PositiveInt | None = None
    """None: up to the model's context."""
    stop: tuple[str, ...] = ()


class Usage(Frozen):
    """Tokens counted by the engine."""

    prompt_tokens: NonNegativeInt = 0
    completion_tokens: NonNegativeInt = 0
    cached_tokens: NonNegativeInt = 0


class Timings(Frozen):
    """Seconds, measured by rank 0 from when it took the task."""

    wait: NonNegativeFloat = 0.0
    """From taking the task to the first prefill step."""
    prefill: NonNegativeFloat = 0.0
    """From there to the first token."""
    decode: NonNegativeFloat = 0.0
    """From the first token to the last."""
