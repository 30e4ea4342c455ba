"""What a runner answers who asks how many tokens a prompt has."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from exo.domain.base import Frozen


class TokensCounted(Frozen):
    """So many, with all that the chat template adds."""

    type: Literal["TokensCounted"] = "TokensCounted"
    tokens: NonNegativeInt


class CountRefused(Frozen):
    """The model cannot make tokens of it."""

    type: Literal["CountRefused"] = "CountRefused"
    code: str
    reason: str
    param: str | None = None


CountAnswer = Annotated[TokensCounted | CountRefused, Field(discriminator="type")]
