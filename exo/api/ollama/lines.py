"""Streams as Ollama has them: a JSON object a line."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from exo.api.generations.choices import Chosen
from exo.api.generations.generation import Item, Note
from exo.api.http.dialects import ollama_error
from exo.api.http.errors import failure
from exo.api.http.problem import Problem
from exo.api.ollama.answers import NOTHING, Said, Writer
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece

MEDIA_TYPE = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Lines:
    """Turns what comes into lines; an EndPiece's is the stream's last."""

    writer: Writer
    loading: Callable[[], float]
    """Seconds that went by until the model was loaded, as far as is known at the end."""
    clock: Callable[[], float] = time.time

    def frames(self, items: Sequence[Chosen]) -> bytes:
        """The lines for what has come, in one piece."""
        now = self.clock()
        return b"".join([self._line(item, now) + b"\n" for _, item in items])

    def _line(self, item: Item, now: float) -> bytes:
        match item:
            case TextPiece():
                return self.writer.part(Said(text=item.text, logprobs=item.logprobs), now)
            case ReasoningPiece():
                return self.writer.part(Said(thinking=item.text), now)
            case ToolCallPiece():
                return self.writer.part(Said(calls=[item]), now)
            case Note():
                # A line that has nothing to say. Clients skip no other.
                return self.writer.part(NOTHING, now)
            case EndPiece():
                return self._end(item, now)
            case _:
                assert_never(item)

    def _end(self, end: EndPiece, now: float) -> bytes:
        if problem := failure(end):
            return ollama_error(Problem(problem.code, problem.reason, problem.param))
        return self.writer.end(end, now, self.loading())
