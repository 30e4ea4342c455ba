"""The bodies of chat completions: whole, and as the chunks of a stream. Absent rather than null, as OpenAI has it."""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, assert_never

from pydantic_core import to_json
from typing_extensions import TypedDict

from exo.api.generations.answer import Answer
from exo.api.generations.choices import usage_together
from exo.api.generations.event_frames import Given
from exo.api.http.errors import GenerationFailed
from exo.api.openai.answer import (
    AnswerLogprobs,
    AnswerMessage,
    UsageFields,
    logprobs_of,
    message_of,
    reasoning_of,
    usage_of,
)
from exo.api.openai.choice_stream import ChoiceStream, failed_stream, head
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import FinishReason

ID_PREFIX = "chatcmpl-"


class ChatChoice(TypedDict):
    """One of the answers."""

    index: int
    message: AnswerMessage
    finish_reason: FinishReason
    logprobs: NotRequired[AnswerLogprobs]


class ChatCompletion(TypedDict):
    """All of them in one piece."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageFields


def completion(
    task_id: TaskId, created: int, model_id: ModelId, answers: Sequence[tuple[Answer, EndPiece]], with_logprobs: bool
) -> ChatCompletion:
    """The answers in one piece."""
    return {
        "id": f"{ID_PREFIX}{task_id}",
        "object": "chat.completion",
        "created": created,
        "model": model_id,
        "choices": [_choice(index, answer, end, with_logprobs) for index, (answer, end) in enumerate(answers)],
        "usage": usage_of(usage_together([end.usage for _, end in answers], len(answers))),
    }


def _choice(index: int, answer: Answer, end: EndPiece, with_logprobs: bool) -> ChatChoice:
    choice: ChatChoice = {"index": index, "message": message_of(answer), "finish_reason": end.finish_reason}
    if with_logprobs:
        choice["logprobs"] = logprobs_of(answer.logprobs)
    return choice


class ChunkWriter:
    """Turns the pieces of all choices into the frames of one stream. What is the same in each frame is made once."""

    __slots__ = ("_before", "_role_sent", "_stream")

    def __init__(self, task_id: TaskId, created: int, model_id: ModelId, count: int, wants_usage: bool) -> None:
        """`count`: of choices."""
        begun = head(f"{ID_PREFIX}{task_id}", "chat.completion.chunk", created, model_id)
        self._stream = ChoiceStream(begun, count, count, wants_usage)
        self._before = [
            b'data: %b[{"index":%d,"delta":{"content":' % (self._stream.head, index) for index in range(count)
        ]
        self._role_sent = [False] * count

    def opening(self) -> Sequence[bytes]:
        """Nothing: the role comes with the first piece."""
        return ()

    def events(self, index: int, item: Given) -> Sequence[bytes]:
        """The frames for one more piece of a choice."""
        if isinstance(item, TextPiece) and not item.logprobs:
            frames = [self._before[index] + to_json(item.text) + b'},"finish_reason":null}]}\n\n']
        else:
            frames = self._frames(index, item)
        if not self._role_sent[index]:
            self._role_sent[index] = True
            frames.insert(0, self._delta(index, {"role": "assistant", "content": ""}))
        return frames

    def closing(self) -> Sequence[bytes]:
        """The usage, where it is wanted, and the end of the stream."""
        return self._stream.closing()

    def failed(self, failed: GenerationFailed) -> bytes:
        """An error, and the end of the stream."""
        return failed_stream(failed)

    def _frames(self, index: int, item: Given) -> list[bytes]:
        match item:
            case TextPiece():
                return [self._delta(index, {"content": item.text}, logprobs=logprobs_of(item.logprobs))]
            case ReasoningPiece():
                return [self._delta(index, reasoning_of(item.text))]
            case ToolCallPiece():
                return self._call(index, item)
            case EndPiece():
                self._stream.end(index, item)
                return [self._delta(index, {}, item.finish_reason)]
            case _:
                assert_never(item)

    def _call(self, index: int, call: ToolCallPiece) -> list[bytes]:
        """As OpenAI has it: first what is called, then with what."""
        function = {"name": call.name, "arguments": ""}
        opening = {"index": call.index, "id": call.id, "type": "function", "function": function}
        arguments = {"index": call.index, "function": {"arguments": call.arguments}}
        return [self._delta(index, {"tool_calls": [opening]}), self._delta(index, {"tool_calls": [arguments]})]

    def _delta(
        self, index: int, delta: Mapping[str, object], finish_reason: FinishReason | None = None, **more: object
    ) -> bytes:
        return self._stream.chunk({"index": index, "delta": delta, **more, "finish_reason": finish_reason})
