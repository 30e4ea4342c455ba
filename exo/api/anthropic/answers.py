"""An answer as Anthropic's message, and the parts of it that streams have too."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, assert_never

from typing_extensions import TypedDict

from exo.api.generations.answer import Answer, GivenPiece
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, ToolCallPiece
from exo.domain.sampling import Usage

ID_PREFIX = "msg_"


class TextOut(TypedDict):
    """What the model said."""

    type: Literal["text"]
    text: str


class ThinkingOut(TypedDict):
    """What it thought before. The signature proves nothing."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseOut(TypedDict):
    """What the client is asked to call."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, object]


BlockOut = TextOut | ThinkingOut | ToolUseOut
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "model_context_window_exceeded"]


class ThinkingTokens(TypedDict):
    """Of the answer's tokens, those of thoughts."""

    thinking_tokens: int


class UsageOut(TypedDict):
    """Tokens. Those of the prompt that were found in the prefix cache are not among `input_tokens`."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens


class MessageHead(TypedDict):
    """What is known of a message before anything has come."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str


class MessageEnding(TypedDict):
    """Why an answer ended, and by which of the stop sequences where one did it."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageOut(MessageHead, MessageEnding):
    """A message in one piece."""

    content: list[BlockOut]
    usage: UsageOut


def message(
    task_id: TaskId, model_id: ModelId, answer: Answer, end: EndPiece, max_tokens: int, shows_thinking: bool
) -> MessageOut:
    """The answer in one piece. `max_tokens`: as the request has it."""
    content = blocks_of(answer.pieces, signature_of(task_id), shows_thinking)
    return {
        **head_of(task_id, model_id),
        "content": content,
        **ending_of(end, max_tokens),
        "usage": usage_of(end.usage),
    }


def head_of(task_id: TaskId, model_id: ModelId) -> MessageHead:
    """What is known before anything has come."""
    return {"id": f"{ID_PREFIX}{task_id}", "type": "message", "role": "assistant", "model": model_id}


def signature_of(task_id: TaskId) -> str:
    """Stands where Anthropic proves that thoughts are its own. Clients want one; exo takes any, and looks at none."""
    return f"exo-{task_id}"


def blocks_of(pieces: Sequence[GivenPiece], signature: str, shows_thinking: bool) -> list[BlockOut]:
    """The content: what comes in a row, of one kind, is one block; each call is one."""
    blocks: list[BlockOut] = []
    for kind, group in groupby(pieces, key=type):
        if kind is ToolCallPiece:
            blocks += [_tool_use(piece) for piece in group if isinstance(piece, ToolCallPiece)]
            continue
        text = "".join([piece.text for piece in group if not isinstance(piece, ToolCallPiece)])
        if kind is ReasoningPiece:
            blocks.append({"type": "thinking", "thinking": text if shows_thinking else "", "signature": signature})
        elif text:
            blocks.append({"type": "text", "text": text})
    return blocks


def ending_of(end: EndPiece, max_tokens: int) -> MessageEnding:
    """Why the answer ended, and by which of the stop sequences where one did it."""
    reason = _stop_reason(end, max_tokens)
    return {"stop_reason": reason, "stop_sequence": end.stop_sequence if reason == "stop_sequence" else None}


def usage_of(usage: Usage) -> UsageOut:
    """Tokens."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _tool_use(call: ToolCallPiece) -> ToolUseOut:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}


def _stop_reason(end: EndPiece, max_tokens: int) -> StopReason:
    match end.finish_reason:
        case "tool_calls":
            return "tool_use"
        case "length":
            is_whole = end.usage.completion_tokens >= max_tokens
            return "max_tokens" if is_whole else "model_context_window_exceeded"
        case "content_filter":
            return "refusal"
        case "stop":
            return "end_turn" if end.stop_sequence is None else "stop_sequence"
        case "cancelled" | "error":
            raise ValueError(f"a generation that ended with '{end.finish_reason}' has no answer")
        case _:
            assert_never(end.finish_reason)
