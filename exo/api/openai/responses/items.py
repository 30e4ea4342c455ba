"""The items of a request's input: messages, and what earlier answers consist of."""

from collections.abc import Sequence
from typing import Annotated, Literal, assert_never, cast

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError, to_json

from exo.api.bodies.strict import LIST_MOST, Strict, Unsupported
from exo.api.openai.messages import CallArguments
from exo.api.openai.responses.contents import Content, ReasoningPart, text_of
from exo.domain.messages.requests import ChatMessage, Role, ToolCall

Status = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Strict):
    """What somebody said. An assistant's comes from an earlier answer."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = None
    status: Status | None = None
    phase: str | None = None

    @property
    def domain_role(self) -> Role:
        """`developer` is `system`."""
        return "system" if self.role == "developer" else self.role


class FunctionCallItem(Strict):
    """A call in an earlier answer."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    arguments: CallArguments
    id: str | None = None
    status: Status | None = None
    namespace: Unsupported = None
    caller: Unsupported = None

    def to_domain(self) -> ToolCall:
        """The call for the engine."""
        return ToolCall(id=self.call_id, name=self.name, arguments=to_json(self.arguments).decode())


class FunctionOutputItem(Strict):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1)]
    output: Content
    id: str | None = None
    status: Status | None = None


class ReasoningItem(Strict):
    """What the model thought in an earlier answer."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: Annotated[list[object], Field(max_length=0)] = Field(default_factory=list[object])
    content: Annotated[list[ReasoningPart], Field(max_length=LIST_MOST)] | None = None
    encrypted_content: Unsupported = None
    status: Status | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(part.text for part in self.content or ())


_TYPES = ("message", "function_call", "function_call_output", "reasoning")


def _typed(item: object) -> object:
    """The item with its type, which is a message's where none is given."""
    if not isinstance(item, dict):
        return item
    fields = {"type": "message", **cast("dict[str, object]", item)}
    if fields["type"] not in _TYPES:
        kind = str(fields["type"])
        raise PydanticCustomError("not_supported", "items of type '{type}' are not supported", {"type": kind})
    return fields


Item = MessageItem | FunctionCallItem | FunctionOutputItem | ReasoningItem
TypedItem = Annotated[Annotated[Item, Field(discriminator="type")], BeforeValidator(_typed)]


def _items(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Items = Annotated[list[TypedItem], Field(min_length=1, max_length=LIST_MOST), BeforeValidator(_items)]
"""A text is what the user says."""


def messages_of(items: Sequence[Item]) -> tuple[ChatMessage, ...]:
    """The items as turns: reasoning, a text and calls that follow each other in this order are one of the assistant."""
    turns: list[ChatMessage] = []
    for item in items:
        match item:
            case ReasoningItem():
                turns.append(ChatMessage(role="assistant", content="", reasoning=item.text or None))
            case MessageItem(role="assistant"):
                _answered(turns, text_of(item.content))
            case MessageItem():
                turns.append(ChatMessage(role=item.domain_role, content=text_of(item.content)))
            case FunctionCallItem():
                _called(turns, item.to_domain())
            case FunctionOutputItem():
                turns.append(ChatMessage(role="tool", content=text_of(item.output), tool_call_id=item.call_id))
            case _:
                assert_never(item)
    return tuple(turns)


def _answered(turns: list[ChatMessage], text: str) -> None:
    last = turns[-1] if turns else None
    if last is not None and last.role == "assistant" and not last.content and not last.tool_calls:
        turns[-1] = last.replaced({"content": text})
    else:
        turns.append(ChatMessage(role="assistant", content=text))


def _called(turns: list[ChatMessage], call: ToolCall) -> None:
    last = turns[-1] if turns else None
    if last is not None and last.role == "assistant":
        turns[-1] = last.replaced({"tool_calls": (*last.tool_calls, call)})
    else:
        turns.append(ChatMessage(role="assistant", content="", tool_calls=(call,)))
