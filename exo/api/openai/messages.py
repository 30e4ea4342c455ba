"""The messages of a chat request: what OpenAI's clients send, and what the engines get."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Json,
    JsonValue,
    model_validator,
)
from pydantic_core import PydanticCustomError, to_json

from exo.api.bodies.strict import LIST_MOST, Strict, field_of
from exo.domain.messages.requests import ChatMessage, Role, ToolCall

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class ContentPart(Strict):
    """A piece of a message's content: text, or in an earlier answer a refusal, which is text as well."""

    type: Literal["text", "refusal"]
    text: str | None = None
    refusal: str | None = None
    cache_control: dict[str, JsonValue] | None = None
    """Asks for what is done anyway: beginnings of prompts are kept."""

    @model_validator(mode="before")
    @classmethod
    def _is_known(cls, part: object) -> object:
        kind = field_of(part, "type")
        if isinstance(kind, str) and kind not in ("text", "refusal"):
            reason = "the models here take text: parts of type '{type}' are not supported"
            raise PydanticCustomError("not_supported", reason, {"type": kind})
        return part

    @model_validator(mode="after")
    def _has_its_text(self) -> "ContentPart":
        (wanted, other) = (self.text, self.refusal) if self.type == "text" else (self.refusal, self.text)
        if wanted is None or other is not None:
            raise PydanticCustomError("missing_text", "a part of type '{type}' needs a '{type}'", {"type": self.type})
        return self

    @property
    def said(self) -> str:
        """Its text."""
        return self.text or self.refusal or ""


def _parts(content: object) -> object:
    if isinstance(content, str):
        return [ContentPart(type="text", text=content)]
    if content is None or isinstance(content, list):
        return content  # pyright: ignore[reportUnknownVariableType]  validated next
    raise PydanticCustomError("content_type", "the content must be a text or a list of parts")


def _nothing_is_empty(arguments: object) -> object:
    return "{}" if arguments == "" else arguments


CallArguments = Annotated[Json[dict[str, JsonValue]], BeforeValidator(_nothing_is_empty)]
"""What a call was made with: a text that holds a JSON object, or nothing."""


class CalledFunction(Strict):
    """What an earlier answer called."""

    name: Annotated[str, Field(min_length=1)]
    arguments: CallArguments = Field(default_factory=dict[str, JsonValue])


class MessageCall(Strict):
    """A call in an earlier answer, of this server or any other."""

    id: Annotated[str, Field(min_length=1)]
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None
    """What clients leave in that put streamed calls together."""

    def to_domain(self) -> ToolCall:
        """The call for the engine."""
        return ToolCall(id=self.id, name=self.function.name, arguments=to_json(self.function.arguments).decode())


def _no_function_role(role: str) -> str:
    if role == "function":
        raise PydanticCustomError("not_supported", "the role 'function' is not supported: use 'tool'")
    return role


Parts = Annotated[list[ContentPart], Field(min_length=1, max_length=LIST_MOST), BeforeValidator(_parts)]


class Message(Strict):
    """One message. The fields that are always null here come back from clients that send an answer as history."""

    role: Annotated[
        Literal["system", "developer", "user", "assistant", "tool", "function"], AfterValidator(_no_function_role)
    ]
    content: Annotated[list[ContentPart], Field(min_length=1, max_length=LIST_MOST), BeforeValidator(_parts)] | None = (
        None
    )
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    """An earlier answer's, in place of a content."""
    audio: None = None
    annotations: list[object] | None = None
    function_call: None = None

    @model_validator(mode="after")
    def _is_whole(self) -> "Message":
        if self.role != "assistant" and any(part.type == "refusal" for part in self.content or ()):
            raise PydanticCustomError("not_refusing", "only a message of role 'assistant' refuses")
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("no_content", "a message of role '{role}' needs a content", {"role": self.role})
        if self.role == "tool" and not self.tool_call_id:
            raise PydanticCustomError("no_call", "a message of role 'tool' needs a 'tool_call_id'")
        if self.tool_calls and self.role != "assistant":
            raise PydanticCustomError("not_calling", "only a message of role 'assistant' has 'tool_calls'")
        return self

    def to_domain(self) -> ChatMessage:
        """The message for the engine; `developer` is `system`."""
        return ChatMessage(
            role=_ROLES[self.role],
            content=self._text,
            name=self.name,
            reasoning=self.reasoning_content or self.reasoning,
            tool_calls=tuple(call.to_domain() for call in self.tool_calls or ()),
            tool_call_id=self.tool_call_id,
        )

    @property
    def _text(self) -> str:
        """Parts are joined by line breaks."""
        return self.refusal or "" if self.content is None else "\n".join(part.said for part in self.content)
