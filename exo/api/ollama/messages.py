"""Ollama's messages, and the conversation that the engines get.

A tool's result may say only which tool it is of, or nothing. Chat templates want the call: it is found by the order.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, to_json

from exo.api.bodies.strict import Strict
from exo.domain.messages.requests import ChatMessage, ToolCall


def _no_images(images: list[str] | None) -> None:
    if images:
        raise PydanticCustomError("not_supported", "the models here take text: images are not supported")


Images = Annotated[list[str] | None, AfterValidator(_no_images)]
"""In base64. None may be there."""


def _lower(role: object) -> object:
    return role.lower() if isinstance(role, str) else role


class CalledFunction(Strict):
    """What an earlier answer called."""

    name: Annotated[str, Field(min_length=1)]
    arguments: dict[str, JsonValue] | None = None
    index: int | None = None
    description: str | None = None
    """Some clients leave it in."""


class MessageCall(Strict):
    """A call in an earlier answer, of this server or any other."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction


class Message(Strict):
    """One message."""

    role: Annotated[Literal["system", "user", "assistant", "tool"], BeforeValidator(_lower)]
    content: str | None = None
    thinking: str | None = None
    images: Images = None
    tool_calls: list[MessageCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None

    @field_validator("thinking", "tool_calls")
    @classmethod
    def _of_an_answer(cls, value: object, info: ValidationInfo) -> object:
        if value and info.data.get("role") not in (None, "assistant"):
            raise PydanticCustomError("not_answering", "only a message of role 'assistant' has this")
        return value

    @field_validator("tool_name", "tool_call_id")
    @classmethod
    def _of_a_result(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("role") not in (None, "tool"):
            raise PydanticCustomError("no_result", "only a message of role 'tool' has this")
        return value


def conversation(messages: Iterable[Message]) -> tuple[ChatMessage, ...]:
    """The messages for the engine. A call without an id gets one, which the tool's result takes up."""
    turns: list[ChatMessage] = []
    open_calls: list[ToolCall] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            call = _answered(message, open_calls)
            turns.append(_turn(message).replaced({"tool_call_id": message.tool_call_id or (call and call.id)}))
            continue
        calls = [_call(call, f"call_{number}_{at}") for at, call in enumerate(message.tool_calls or ())]
        open_calls += calls
        turns.append(_turn(message).replaced({"tool_calls": tuple(calls)}))
    return tuple(turns)


def _turn(message: Message) -> ChatMessage:
    return ChatMessage(
        role=message.role,
        content=message.content or "",
        name=message.tool_name,
        reasoning=message.thinking or None,
    )


def _call(call: MessageCall, new_id: str) -> ToolCall:
    arguments = to_json(call.function.arguments or {}).decode()
    return ToolCall(id=call.id or new_id, name=call.function.name, arguments=arguments)


def _answered(message: Message, open_calls: list[ToolCall]) -> ToolCall | None:
    """The call that a result is of, taken out of those that wait for theirs: by its id, by its tool, or the oldest."""
    by_id = [call for call in open_calls if call.id == message.tool_call_id]
    by_name = [call for call in open_calls if call.name == message.tool_name]
    found = next(iter(by_id if message.tool_call_id else by_name or open_calls), None)
    if found is not None:
        open_calls.remove(found)
    return found
