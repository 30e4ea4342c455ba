"""The bodies of completions: whole, and as the chunks of a stream."""

from collections.abc import Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from exo.api.generations.answer import Answer
from exo.api.generations.choices import usage_together
from exo.api.generations.event_frames import Given
from exo.api.http.errors import GenerationFailed
from exo.api.openai.answer import UsageFields, usage_of
from exo.api.openai.choice_stream import ChoiceStream, failed_stream, head
from exo.api.openai.completion_logprobs import CompletionLogprobs, LogprobLists
from exo.domain.ids import ModelId, TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import EndPiece, TextPiece
from exo.domain.sampling import FinishReason

ID_PREFIX = "cmpl-"
KIND: Literal["text_completion"] = "text_completion"


class TextChoice(TypedDict):
    """One continuation."""

    index: int
    text: str
    finish_reason: FinishReason | None
    logprobs: NotRequired[LogprobLists]


class TextCompletion(TypedDict):
    """All of them in one piece."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageFields


def completion(
    task_id: TaskId,
    created: int,
    model_id: ModelId,
    answers: Sequence[tuple[Answer, EndPiece]],
    per_prompt: int,
    with_logprobs: bool,
) -> TextCompletion:
    """All choices in one piece, `per_prompt` of them for each prompt."""
    choices = [
        _choice(index, answer.text, end.finish_reason, CompletionLogprobs() if with_logprobs else None, answer.logprobs)
        for index, (answer, end) in enumerate(answers)
    ]
    return {
        "id": f"{ID_PREFIX}{task_id}",
        "object": KIND,
        "created": created,
        "model": model_id,
        "choices": choices,
        "usage": usage_of(usage_together([end.usage for _, end in answers], per_prompt)),
    }


class CompletionWriter:
    """Turns the pieces of all choices into the frames of one stream."""

    __slots__ = ("_logprobs", "_stream")

    def __init__(
        self,
        task_id: TaskId,
        created: int,
        model_id: ModelId,
        count: int,
        per_prompt: int,
        with_logprobs: bool,
        wants_usage: bool,
    ) -> None:
        """`count`: of choices, `per_prompt` of them for each prompt."""
        begun = head(f"{ID_PREFIX}{task_id}", KIND, created, model_id)
        self._stream = ChoiceStream(begun, count, per_prompt, wants_usage)
        self._logprobs = [CompletionLogprobs() if with_logprobs else None for _ in range(count)]

    def opening(self) -> Sequence[bytes]:
        """Nothing."""
        return ()

    def events(self, index: int, item: Given) -> Sequence[bytes]:
        """The frames for one more piece of a choice."""
        match item:
            case TextPiece():
                return [self._stream.chunk(_choice(index, item.text, None, self._logprobs[index], item.logprobs))]
            case EndPiece():
                self._stream.end(index, item)
                return [self._stream.chunk(_choice(index, "", item.finish_reason))]
            case _:  # what follows a prompt as it stands is text alone
                return ()

    def closing(self) -> Sequence[bytes]:
        """The usage, where it is wanted, and the end of the stream."""
        return self._stream.closing()

    def failed(self, failed: GenerationFailed) -> bytes:
        """An error, and the end of the stream."""
        return failed_stream(failed)


def _choice(
    index: int,
    text: str,
    finish_reason: FinishReason | None,
    logprobs: CompletionLogprobs | None = None,
    told: Sequence[TokenLogprobs] = (),
) -> TextChoice:
    choice: TextChoice = {"index": index, "text": text, "finish_reason": finish_reason}
    if logprobs is not None:
        choice["logprobs"] = logprobs.part(told)
    return choice
