"""The bodies of chat completions: whole, and as the chunks of a stream. Absent rather than null, as OpenAI has it."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from pydantic_core import to_json

from exo.api import sse
from exo.api.dialects import openai_error
from exo.api.errors import Problem, failure
from exo.api.generation import Item, Note
from exo.api.openai.answer import Answer, logprobs_of, reasoning_of
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import FinishReason, Usage

ID_PREFIX = "chatcmpl-"


def usage_of(usage: Usage) -> dict[str, object]:
    """Tokens, with OpenAI's names."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def completion(
    task_id: TaskId, created: int, model_id: ModelId, answer: Answer, end: EndPiece, with_logprobs: bool
) -> bytes:
    """The answer in one piece."""
    choice = {"index": 0, "message": answer.message(), "finish_reason": end.finish_reason}
    if with_logprobs:
        choice["logprobs"] = logprobs_of(answer.logprobs)
    body = {
        "id": f"{ID_PREFIX}{task_id}",
        "object": "chat.completion",
        "created": created,
        "model": model_id,
        "choices": [choice],
        "usage": usage_of(end.usage),
    }
    return to_json(body)


class ChunkWriter:
    """Turns a generation's items into the frames of its stream. What is the same in each frame is made once."""

    __slots__ = ("_before", "_head", "_role_sent", "_wants_usage")

    def __init__(self, task_id: TaskId, created: int, model_id: ModelId, wants_usage: bool) -> None:
        head = {
            "id": f"{ID_PREFIX}{task_id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model_id,
        }
        self._head = to_json(head).removesuffix(b"}") + b',"choices":'
        self._before = b"data: " + self._head + b'[{"index":0,"delta":{"content":'
        self._role_sent = False
        self._wants_usage = wants_usage

    def frames(self, items: Sequence[Item]) -> bytes:
        """The frames for what has come, in one piece; an EndPiece's are the stream's last."""
        return b"".join([self._frame(item) for item in items])

    def _frame(self, item: Item) -> bytes:
        if isinstance(item, TextPiece) and item.logprobs:
            told = logprobs_of(item.logprobs)
            return self._role() + self._chunk(_choice({"content": item.text}, None, logprobs=told))
        if isinstance(item, TextPiece):
            return self._role() + self._before + to_json(item.text) + b'},"finish_reason":null}]}\n\n'
        match item:
            case Note():
                return sse.comment(item.text)
            case ReasoningPiece():
                return self._role() + self._delta(reasoning_of(item.text))
            case ToolCallPiece():
                return self._role() + self._call(item)
            case EndPiece():
                return self._end(item)
            case _:
                assert_never(item)

    def _call(self, call: ToolCallPiece) -> bytes:
        """As OpenAI has it: first what is called, then with what."""
        function = {"name": call.name, "arguments": ""}
        opening = {"index": call.index, "id": call.id, "type": "function", "function": function}
        arguments = {"index": call.index, "function": {"arguments": call.arguments}}
        return self._delta({"tool_calls": [opening]}) + self._delta({"tool_calls": [arguments]})

    def _delta(self, delta: Mapping[str, object]) -> bytes:
        return self._chunk(_choice(delta, None))

    def _role(self) -> bytes:
        if self._role_sent:
            return b""
        self._role_sent = True
        return self._delta({"role": "assistant", "content": ""})

    def _end(self, end: EndPiece) -> bytes:
        if problem := failure(end):
            return sse.data(openai_error(Problem(problem.code, problem.reason, problem.param))) + sse.DONE
        finish = self._chunk(_choice({}, end.finish_reason))
        usage = self._chunk(b"[]", b',"usage":' + to_json(usage_of(end.usage))) if self._wants_usage else b""
        return self._role() + finish + usage + sse.DONE

    def _chunk(self, choices: bytes, more: bytes = b"") -> bytes:
        return sse.data(self._head + choices + more + b"}")


def _choice(delta: Mapping[str, object], finish_reason: FinishReason | None, **more: object) -> bytes:
    return to_json([{"index": 0, "delta": delta, **more, "finish_reason": finish_reason}])
