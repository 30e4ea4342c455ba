"""Anthropic's messages, and the conversation that the engines get: a turn a speaker, each tool's result on its own."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, assert_never

from pydantic import BeforeValidator, Field, Tag
from pydantic_core import to_json

from exo.api.anthropic.blocks import (
    AssistantContent,
    RedactedThinkingBlock,
    TextBlock,
    TextContent,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserContent,
    joined,
    listed,
)
from exo.api.bodies.strict import LIST_MOST, Strict, by_field
from exo.domain.messages.requests import ChatMessage, ToolCall

Texts = Annotated[list[TextContent], Field(min_length=1, max_length=LIST_MOST), BeforeValidator(listed)]
"""A text, or blocks of it."""


class SystemMessage(Strict):
    """Instructions, also in the middle of a conversation."""

    role: Literal["system"]
    content: Texts

    def to_domain(self) -> list[ChatMessage]:
        """One message."""
        return [ChatMessage(role="system", content=joined(self.content))]


class UserMessage(Strict):
    """What the user says, and what the client's tools gave."""

    role: Literal["user"]
    content: Annotated[list[UserContent], Field(min_length=1, max_length=LIST_MOST), BeforeValidator(listed)]

    def to_domain(self) -> list[ChatMessage]:
        """A message for each block, in their order."""
        return [_of_user(block) for block in self.content]


class AssistantMessage(Strict):
    """An earlier answer."""

    role: Literal["assistant"]
    content: Annotated[list[AssistantContent], Field(min_length=1, max_length=LIST_MOST), BeforeValidator(listed)]

    def to_domain(self) -> list[ChatMessage]:
        """A message for each block that a model can read, in their order."""
        return [message for block in self.content if (message := _of_assistant(block))]


InputMessage = Annotated[
    Annotated[SystemMessage, Tag("<system>")]
    | Annotated[UserMessage, Tag("<user>")]
    | Annotated[AssistantMessage, Tag("<assistant>")],
    by_field("role", "user", "assistant", "system"),
]


def conversation(system: Sequence[TextBlock], messages: Iterable[InputMessage]) -> tuple[ChatMessage, ...]:
    """What the engines get: the system's text first, and what one speaker says in a row in one message."""
    turns = [ChatMessage(role="system", content=joined(system))] if system else []
    for message in messages:
        for part in message.to_domain():
            if turns and part.role != "tool" and turns[-1].role == part.role:
                turns[-1] = _together(turns[-1], part)
            else:
                turns.append(part)
    return tuple(turns)


def _of_user(block: UserContent) -> ChatMessage:
    match block:
        case TextBlock():
            return ChatMessage(role="user", content=block.text)
        case ToolResultBlock():
            return ChatMessage(role="tool", content=block.text, tool_call_id=block.tool_use_id)
        case _:
            assert_never(block)


def _of_assistant(block: AssistantContent) -> ChatMessage | None:
    match block:
        case TextBlock():
            return ChatMessage(role="assistant", content=block.text)
        case ThinkingBlock():
            return ChatMessage(role="assistant", content="", reasoning=block.thinking)
        case ToolUseBlock():
            call = ToolCall(id=block.id, name=block.name, arguments=to_json(block.input).decode())
            return ChatMessage(role="assistant", content="", tool_calls=(call,))
        case RedactedThinkingBlock():
            return None
        case _:
            assert_never(block)


def _together(first: ChatMessage, second: ChatMessage) -> ChatMessage:
    return ChatMessage(
        role=first.role,
        content=_lines(first.content, second.content),
        reasoning=_lines(first.reasoning, second.reasoning) or None,
        tool_calls=first.tool_calls + second.tool_calls,
    )


def _lines(*texts: str | None) -> str:
    return "\n".join(text for text in texts if text)
