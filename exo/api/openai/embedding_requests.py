"""The body of `POST /v1/embeddings`."""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import AsksModel
from exo.api.openai.prompts import Listed, Prompt
from exo.domain.embedding import INPUTS_MOST, Dimensions, EmbeddingParams, Pooling
from exo.domain.messages.requests import EmbeddingRequest

T = TypeVar("T")


def few_enough(inputs: list[T]) -> list[T]:
    """For validators. Raises PydanticCustomError where there are more texts than a request may have."""
    if len(inputs) > INPUTS_MOST:
        counts = {"count": len(inputs), "most": INPUTS_MOST}
        raise PydanticCustomError("many_inputs", "these are {count} texts, and {most} are the most", counts)
    return inputs


class EmbeddingsRequest(AsksModel):
    """A request for the vectors of one text or several. Null stands for the default throughout."""

    input: Annotated[list[Prompt], Field(min_length=1, fail_fast=True), Listed, AfterValidator(few_enough)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None
    pooling: Pooling | None = None
    """Not a parameter of OpenAI's endpoint."""
    user: str | None = None

    def to_domain(self) -> EmbeddingRequest:
        """The payload for the engine."""
        params = EmbeddingParams(pooling=self.pooling, dimensions=self.dimensions)
        return EmbeddingRequest(inputs=tuple(self.input), params=params)
