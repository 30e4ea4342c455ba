"""The messages of a chat request: what OpenAI's clients send, and what the engines get."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from exo.domain.messages.requests import ChatMessage, Role

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Strict(BaseModel):
    """Part of a request: nothing is converted, and nothing that would be ignored is accepted."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ContentPart(Strict):
    """A piece of a message's content."""

    model_config = ConfigDict(extra="ignore")  # what belongs to a part of another type is no error of its own

    type: str
    text: str | None = None

    @model_validator(mode="after")
    def _is_text(self) -> "ContentPart":
        if self.type != "text":
            raise PydanticCustomError("not_supported", "'{type}' parts are not supported yet", {"type": self.type})
        if self.text is None:
            raise PydanticCustomError("missing_text", "a part of type 'text' needs a text")
        return self


def _parts(content: object) -> object:
    if isinstance(content, str):
        return [ContentPart(type="text", text=content)]
    if content is None or isinstance(content, list):
        return content  # pyright: ignore[reportUnknownVariableType]  validated next
    raise PydanticCustomError("content_type", "the content must be a text or a list of parts")


class Message(Strict):
    """One message. The fields that are always null here come back from clients that send an answer as history."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[list[ContentPart], BeforeValidator(_parts), Field(min_length=1)] | None = None
    name: str | None = None
    refusal: None = None
    audio: None = None
    annotations: list[object] | None = None
    function_call: None = None
    tool_calls: list[object] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _is_supported(self) -> "Message":
        if self.role in ("tool", "function"):
            raise PydanticCustomError("not_supported", "the role '{role}' is not supported yet", {"role": self.role})
        if self.tool_calls:
            raise PydanticCustomError("not_supported", "tool calls are not supported yet")
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("no_content", "a message of role '{role}' needs a content", {"role": self.role})
        return self

    def to_domain(self) -> ChatMessage:
        """The message for the engine: `developer` is `system`, and parts are joined by line breaks."""
        text = "\n".join(part.text or "" for part in self.content or ())
        return ChatMessage(role=_ROLES[self.role], content=text, name=self.name)
