"""What chat completions and completions have in common: what each body begins with, and how a stream ends."""

from collections.abc import Mapping, Sequence

from pydantic_core import to_json

from exo.api.generations import sse
from exo.api.generations.choices import usage_together
from exo.api.http.dialects import openai_error
from exo.api.http.errors import GenerationFailed
from exo.api.openai.answer import usage_of
from exo.domain.ids import ModelId
from exo.domain.messages.chunks import EndPiece
from exo.domain.sampling import Usage


def head(completion_id: str, kind: str, created: int, model_id: ModelId) -> dict[str, object]:
    """What a body or a chunk begins with."""
    return {"id": completion_id, "object": kind, "created": created, "model": model_id}


class ChoiceStream:
    """Makes chunks of one stream of several choices, and knows when all of these are over."""

    __slots__ = ("_usages", "_wants_usage", "head", "per_prompt")

    def __init__(self, head: Mapping[str, object], count: int, per_prompt: int, wants_usage: bool) -> None:
        self.head = to_json(head).removesuffix(b"}") + b',"choices":'
        """The same in each chunk."""
        self.per_prompt = per_prompt
        self._usages: list[Usage | None] = [None] * count
        """Of those that are over."""
        self._wants_usage = wants_usage

    def chunk(self, choice: Mapping[str, object]) -> bytes:
        """One event."""
        return sse.data(b"%b[%b]}" % (self.head, to_json(choice)))

    def end(self, index: int, end: EndPiece) -> None:
        """A choice is over."""
        self._usages[index] = end.usage

    def closing(self) -> list[bytes]:
        """What follows the last chunk of all choices: the usage and the stream's end. Nothing while one is not over."""
        usages = [usage for usage in self._usages if usage is not None]
        return self._last(usages) if len(usages) == len(self._usages) else []

    def _last(self, usages: Sequence[Usage]) -> list[bytes]:
        if not self._wants_usage:
            return [sse.DONE]
        usage = to_json(usage_of(usage_together(usages, self.per_prompt)))
        return [sse.data(b'%b[],"usage":%b}' % (self.head, usage)), sse.DONE]


def failed_stream(failed: GenerationFailed) -> bytes:
    """The end of all choices, where one of them failed."""
    return sse.data(openai_error(failed.problem)) + sse.DONE
