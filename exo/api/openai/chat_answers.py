"""The bodies of chat completions: whole, and as the chunks of a stream. Absent rather than null, as OpenAI has it."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from pydantic_core import to_json

from exo.api import sse
from exo.api.answer import Answer
from exo.api.choices import Chosen
from exo.api.generation import Item, Note
from exo.api.openai.answer import logprobs_of, message_of, reasoning_of
from exo.api.openai.choice_stream import ChoiceStream, head, whole_body
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import FinishReason

ID_PREFIX = "chatcmpl-"


def completion(
    task_id: TaskId, created: int, model_id: ModelId, answers: Sequence[tuple[Answer, EndPiece]], with_logprobs: bool
) -> bytes:
    """The answers in one piece."""
    choices = [_whole_choice(index, answer, end, with_logprobs) for index, (answer, end) in enumerate(answers)]
    begun = head(f"{ID_PREFIX}{task_id}", "chat.completion", created, model_id)
    return whole_body(begun, choices, [end.usage for _, end in answers], len(answers))


def _whole_choice(index: int, answer: Answer, end: EndPiece, with_logprobs: bool) -> dict[str, object]:
    choice: dict[str, object] = {"index": index, "message": message_of(answer), "finish_reason": end.finish_reason}
    if with_logprobs:
        choice["logprobs"] = logprobs_of(answer.logprobs)
    return choice


class ChunkWriter:
    """Turns the items of all choices into the frames of one stream. What is the same in each frame is made once."""

    __slots__ = ("_before", "_role_sent", "_stream")

    def __init__(self, task_id: TaskId, created: int, model_id: ModelId, count: int, wants_usage: bool) -> None:
        """`count`: of choices."""
        begun = head(f"{ID_PREFIX}{task_id}", "chat.completion.chunk", created, model_id)
        self._stream = ChoiceStream(begun, count, count, wants_usage)
        self._before = [
            b'data: %b[{"index":%d,"delta":{"content":' % (self._stream.head, index) for index in range(count)
        ]
        self._role_sent = [False] * count

    def frames(self, items: Sequence[Chosen]) -> bytes:
        """The frames for what has come, in one piece; the last choice's end and a failure are the stream's last."""
        return b"".join([self._frame(index, item) for index, item in items])

    def _frame(self, index: int, item: Item) -> bytes:
        if isinstance(item, TextPiece) and item.logprobs:
            return self._role(index) + self._delta(index, {"content": item.text}, logprobs=logprobs_of(item.logprobs))
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
                finish = self._delta(index, {}, item.finish_reason)
                return self._stream.end(index, item, self._role(index) + finish)
            case _:
                assert_never(item)

    def _call(self, index: int, call: ToolCallPiece) -> bytes:
        """As OpenAI has it: first what is called, then with what."""
        function = {"name": call.name, "arguments": ""}
        opening = {"index": call.index, "id": call.id, "type": "function", "function": function}
        arguments = {"index": call.index, "function": {"arguments": call.arguments}}
        return self._delta(index, {"tool_calls": [opening]}) + self._delta(index, {"tool_calls": [arguments]})

    def _role(self, index: int) -> bytes:
        if self._role_sent[index]:
            return b""
        self._role_sent[index] = True
        return self._delta(index, {"role": "assistant", "content": ""})

    def _delta(
        self, index: int, delta: Mapping[str, object], finish_reason: FinishReason | None = None, **more: object
    ) -> bytes:
        return self._stream.chunk({"index": index, "delta": delta, **more, "finish_reason": finish_reason})
