"""The texts in items of the input, given as a text or as parts."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from exo.api.bodies.strict import LIST_MOST, Strict

_TEXTS = ("input_text", "output_text", "text")


class TextPart(Strict):
    """A part of a message, of a tool's output, or of an earlier answer."""

    model_config = ConfigDict(extra="ignore")  # annotations and logprobs of an earlier answer say nothing to a model

    type: str
    text: str | None = None

    @model_validator(mode="after")
    def _is_text(self) -> "TextPart":
        if self.type not in _TEXTS:
            raise PydanticCustomError("not_supported", "'{type}' parts are not supported", {"type": self.type})
        if self.text is None:
            raise PydanticCustomError("missing_text", "a part of type '{type}' needs a text", {"type": self.type})
        return self


class ReasoningPart(Strict):
    """A part of what a model thought."""

    type: Literal["reasoning_text"]
    text: str


def _parts(content: object) -> object:
    if isinstance(content, str):
        return [TextPart(type="input_text", text=content)]
    if isinstance(content, list):
        return content  # pyright: ignore[reportUnknownVariableType]  validated next
    raise PydanticCustomError("content_type", "the content must be a text or a list of parts")


Content = Annotated[list[TextPart], Field(min_length=1, max_length=LIST_MOST), BeforeValidator(_parts)]


def text_of(content: list[TextPart]) -> str:
    """Parts are joined by line breaks."""
    return "\n".join(part.text or "" for part in content)
