"""The bodies of Ollama's requests for vectors."""

from typing import Annotated

from pydantic import AfterValidator, field_validator
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import AsksModel
from exo.api.ollama.durations import Duration
from exo.api.ollama.options import OF_ANSWERS, Options
from exo.api.openai.embedding_requests import few_enough
from exo.api.openai.prompts import Listed
from exo.domain.embedding import Dimensions, EmbeddingParams
from exo.domain.messages.requests import EmbeddingRequest


class TextOptions(Options):
    """Those that have a meaning for texts."""

    @field_validator(*OF_ANSWERS)
    @classmethod
    def _about_answers(cls, value: object) -> None:
        if value is not None:
            raise PydanticCustomError("not_supported", "this is about answers, and there is none")


class TextsRequest(AsksModel):
    """What both have in common. Null stands for the default throughout."""

    options: TextOptions | None = None
    keep_alive: Duration = None

    @property
    def context(self) -> int | None:
        """The most tokens of a text that a client wants; None: as many as the model takes."""
        return self.options.num_ctx if self.options else None


class EmbedRequest(TextsRequest):
    """The body of `POST /ollama/api/embed`. Without a text the model is only loaded."""

    input: Annotated[list[str], Listed, AfterValidator(few_enough)] | None = None
    truncate: bool | None = None
    """Unless it is false."""
    dimensions: Dimensions | None = None

    def to_domain(self) -> EmbeddingRequest:
        """The payload for the engine."""
        texts = [] if self.input in (None, [""]) else self.input or []
        params = EmbeddingParams(dimensions=self.dimensions, truncate=self.truncate is not False, context=self.context)
        return EmbeddingRequest(inputs=tuple(texts), params=params)


class EmbeddingsRequest(TextsRequest):
    """The body of `POST /ollama/api/embeddings`. Without a text the model is only loaded."""

    prompt: str | None = None

    def to_domain(self) -> EmbeddingRequest:
        """The payload for the engine."""
        texts = (self.prompt,) if self.prompt else ()
        return EmbeddingRequest(inputs=texts, params=EmbeddingParams(context=self.context))
