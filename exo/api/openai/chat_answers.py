"""The bodies of chat completions: whole, and as the chunks of a stream. Absent rather than null, as OpenAI has it."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from pydantic_core import to_json

from exo.api import sse
from exo.api.answer import Answer
from exo.api.choices import Chosen, usage_together
from exo.api.dialects import openai_error
from exo.api.errors import Problem, failure
from exo.api.generation import Item, Note
from exo.api.openai.answer import logprobs_of, message_of, reasoning_of, usage_of
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import FinishReason, Usage

ID_PREFIX = "chatcmpl-"


def completion(
    task_id: TaskId, created: int, model_id: ModelId, answers: Sequence[tuple[Answer, EndPiece]], with_logprobs: bool
) -> bytes:
    """The answers in one piece."""
    choices = [_whole_choice(index, answer, end, with_logprobs) for index, (answer, end) in enumerate(answers)]
    usage = usage_together([end.usage for _, end in answers], len(answers))
    head = _head("chat.completion", task_id, created, model_id)
    return to_json({**head, "choices": choices, "usage": usage_of(usage)})


def _head(kind: str, task_id: TaskId, created: int, model_id: ModelId) -> dict[str, object]:
    return {"id": f"{ID_PREFIX}{task_id}", "object": kind, "created": created, "model": model_id}


def _whole_choice(index: int, answer: Answer, end: EndPiece, with_logprobs: bool) -> dict[str, object]:
    choice: dict[str, object] = {"index": index, "message": message_of(answer), "finish_reason": end.finish_reason}
    if with_logprobs:
        choice["logprobs"] = logprobs_of(answer.logprobs)
    return choice


class ChunkWriter:
    """Turns the items of all choices into the frames of one stream. What is the same in each frame is made once."""

    __slots__ = ("_before", "_head", "_role_sent", "_usages", "_wants_usage")

    def __init__(self, task_id: TaskId, created: int, model_id: ModelId, count: int, wants_usage: bool) -> None:
        """`count`: of choices."""
        head = to_json(_head("chat.completion.chunk", task_id, created, model_id))
        self._head = head.removesuffix(b"}") + b',"choices":'
        self._before = [b'data: %b[{"index":%d,"delta":{"content":' % (self._head, index) for index in range(count)]
        self._role_sent = [False] * count
        self._usages: list[Usage | None] = [None] * count
        """Of those that are over."""
        self._wants_usage = wants_usage

    def frames(self, items: Sequence[Chosen]) -> bytes:
        """The frames for what has come, in one piece; the last choice's end and a failure are the stream's last."""
        return b"".join([self._frame(index, item) for index, item in items])

    def _frame(self, index: int, item: Item) -> bytes:
        if isinstance(item, TextPiece) and item.logprobs:
            told = logprobs_of(item.logprobs)
            return self._role(index) + self._chunk(_choice(index, {"content": item.text}, logprobs=told))
        if isinstance(item, TextPiece):
            return self._role(index) + self._before[index] + to_json(item.text) + b'},"finish_reason":null}]}\n\n'
        match item:
            case Note():
                return sse.comment(item.text)
            case ReasoningPiece():
                return self._role(index) + self._delta(index, reasoning_of(item.text))
            case ToolCallPiece():
                return self._role(index) + self._call(index, item)
            case EndPiece():
                return self._end(index, item)
            case _:
                assert_never(item)

    def _call(self, index: int, call: ToolCallPiece) -> bytes:
        """As OpenAI has it: first what is called, then with what."""
        function = {"name": call.name, "arguments": ""}
        opening = {"index": call.index, "id": call.id, "type": "function", "function": function}
        arguments = {"index": call.index, "function": {"arguments": call.arguments}}
        return self._delta(index, {"tool_calls": [opening]}) + self._delta(index, {"tool_calls": [arguments]})

    def _delta(self, index: int, delta: Mapping[str, object]) -> bytes:
        return self._chunk(_choice(index, delta))

    def _role(self, index: int) -> bytes:
        if self._role_sent[index]:
            return b""
        self._role_sent[index] = True
        return self._delta(index, {"role": "assistant", "content": ""})

    def _end(self, index: int, end: EndPiece) -> bytes:
        if problem := failure(end):
            return sse.data(openai_error(Problem(problem.code, problem.reason, problem.param))) + sse.DONE
        self._usages[index] = end.usage
        finish = self._role(index) + self._chunk(_choice(index, {}, end.finish_reason))
        usages = [usage for usage in self._usages if usage is not None]
        return finish + self._last(usages) if len(usages) == len(self._usages) else finish

    def _last(self, usages: Sequence[Usage]) -> bytes:
        if not self._wants_usage:
            return sse.DONE
        usage = usage_of(usage_together(usages, len(usages)))
        return self._chunk(b"[]", b',"usage":' + to_json(usage)) + sse.DONE

    def _chunk(self, choices: bytes, more: bytes = b"") -> bytes:
        return sse.data(self._head + choices + more + b"}")


def _choice(
    index: int, delta: Mapping[str, object], finish_reason: FinishReason | None = None, **more: object
) -> bytes:
    return to_json([{"index": index, "delta": delta, **more, "finish_reason": finish_reason}])
