"""The body of `POST /v1/completions`: a prompt that is continued as it stands."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import AsksModel, Unsupported
from exo.api.openai.choice_requests import CHOICES_MOST, each_choice
from exo.api.openai.formats import FormatFields
from exo.api.openai.prompts import Listed, Prompt
from exo.api.openai.sampling_fields import SamplingFields
from exo.api.openai.stream_fields import StreamFields
from exo.domain.logprobs import TOP_LOGPROBS_MOST
from exo.domain.messages.requests import GenerationRequest

MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""


class CompletionRequest(FormatFields, SamplingFields, StreamFields, AsksModel):
    """A request for the continuation of one prompt or several. Null stands for the default throughout."""

    prompt: Annotated[list[Prompt], Field(min_length=1, max_length=CHOICES_MOST), Listed]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MOST)] | None = None
    best_of: int | None = None
    user: str | None = None
    suffix: Unsupported = None

    @field_validator("prompt")
    @classmethod
    def _few_enough(cls, value: list[Prompt], info: ValidationInfo) -> list[Prompt]:
        if len(value) * (info.data.get("n") or 1) > CHOICES_MOST:
            most = {"most": CHOICES_MOST}
            raise PydanticCustomError("many_choices", "prompts times 'n' must not be above {most}", most)
        return value

    @field_validator("logprobs")
    @classmethod
    def _of_what_is_generated(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("echo"):
            raise PydanticCustomError("not_supported", "no logprobs of a prompt are told: leave out this or 'echo'")
        return value

    @field_validator("best_of")
    @classmethod
    def _all_are_answers(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value != (info.data.get("n") or 1):
            raise PydanticCustomError("not_supported", "only as many as 'n': every answer is given back")
        return value

    @property
    def count(self) -> int:
        """Choices of each prompt."""
        return self.n or 1

    def to_domain(self) -> Sequence[GenerationRequest]:
        """The payloads for the engine: all choices of the first prompt, then those of the next."""
        params = self.sampling(self.max_tokens or MAX_TOKENS, self.logprobs, self.constraint())
        requests = [GenerationRequest(prompt=one, echo=self.echo is True, params=params) for one in self.prompt]
        return [choice for request in requests for choice in each_choice(request, self.count)]
