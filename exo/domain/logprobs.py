"""How likely the model found the tokens that it chose, and those that it might have chosen."""

from typing import Annotated

from pydantic import Field, NonPositiveFloat

from exo.domain.base import Frozen

TOP_LOGPROBS_MOST = 20
"""Of one position; OpenAI's limit."""

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have; OpenAI's value."""

Byte = Annotated[int, Field(ge=0, le=255)]


class TokenLogprob(Frozen):
    """One token that was possible at one position."""

    token: str
    """Its text; bytes that are no whole character are shown as U+FFFD."""
    bytes: tuple[Byte, ...]
    """What it adds to the text. Joined over the tokens they are the text in UTF-8, characters cut over tokens too."""
    logprob: NonPositiveFloat
    """Natural logarithm of the probability that the model itself gave it: before temperature, penalties, biases,
    filters and constraints. At least LEAST_LOGPROB."""


class TokenLogprobs(TokenLogprob):
    """The token that was chosen, and the likeliest ones at its position."""

    top_logprobs: Annotated[tuple[TokenLogprob, ...], Field(max_length=TOP_LOGPROBS_MOST)] = ()
    """As many as were asked for, the likeliest first. The chosen token need not be among them."""
