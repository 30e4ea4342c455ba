"""What a runner asks of another instance's runner that is to compute a prompt for it, and what that one answers."""

from typing import Annotated, Literal

from pydantic import Field

from exo.domain.base import Frozen
from exo.domain.ids import TaskId
from exo.domain.sampling import TokenNumber


class PrefillAsked(Frozen):
    """Compute the KV state of a prompt, and hand it to whoever comes with the key."""

    type: Literal["PrefillAsked"] = "PrefillAsked"
    task_id: TaskId
    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Good for once."""
    tokens: Annotated[tuple[TokenNumber, ...], Field(min_length=2)]
    """The prompt; the state is of all but its last token. Not its text: both sides are to compute the same tokens,
    whatever their templates."""


class PrefillOffered(Frozen):
    """It is being computed."""

    type: Literal["PrefillOffered"] = "PrefillOffered"
    port: Annotated[int, Field(gt=0, le=65535)]
    """Where the state can be had, on the prefill instance's node."""


class PrefillRefused(Frozen):
    """It is not: the prompt is left to the instance that asked."""

    type: Literal["PrefillRefused"] = "PrefillRefused"
    reason: str


PrefillAnswer = Annotated[PrefillOffered | PrefillRefused, Field(discriminator="type")]
