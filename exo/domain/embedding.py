"""How texts become vectors."""

from typing import Annotated, Literal

from pydantic import Field

from exo.domain.base import Frozen
from exo.domain.sampling import INTEGER_MOST

Gives = Literal["text", "vectors"]
"""What comes of a request."""
Pooling = Literal["mean", "last"]
"""Which of the last layer's outputs is a text's vector: the mean of all its tokens', or that of its last token."""
INPUTS_MOST = 2048
"""Texts of one request. OpenAI's limit."""

Dimensions = Annotated[int, Field(ge=1, le=INTEGER_MOST)]


class EmbeddingParams(Frozen):
    """Parameters of one request for vectors, as the engine gets them."""

    pooling: Pooling | None = None
    """None: as the model was trained to."""
    dimensions: Dimensions | None = None
    """Only so many of a vector's numbers, its first ones; None: all."""
    truncate: bool = False
    """Whether a text that is longer than the context is cut there. Otherwise it is refused."""
    context: Annotated[int, Field(ge=1)] | None = None
    """The most tokens of a text that a client wants; None, or more than the model's context: as many as that has."""
