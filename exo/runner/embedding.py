"""One request for vectors in a runner: from the engine's outputs to chunks, and what is counted on the way."""

import time
from base64 import b64encode
from dataclasses import dataclass
from typing import assert_never

from exo.domain.messages.chunks import EndPiece, Piece, VectorPiece
from exo.domain.messages.tasks import GenerateTask
from exo.domain.sampling import FinishReason, Timings, Usage
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, TokenOutput, VectorOutput


@dataclass(slots=True)
class Embedding:
    """A request for vectors that the engine runs. Times are monotonic, seconds."""

    task: GenerateTask
    taken_at: float
    computed_tokens: int = 0
    began_at: float | None = None

    @property
    def said(self) -> str:
        """Nothing: vectors never enter the log."""
        return ""

    def take(self, output: EngineOutput) -> list[Piece]:
        """The chunks of one more output; the last is an EndPiece when all vectors are there, or it failed."""
        match output:
            case PrefillOutput():
                self.began_at = self.began_at or time.monotonic()
                self.computed_tokens = output.done
                return []
            case VectorOutput():
                piece = VectorPiece(index=output.index, vector=b64encode(output.vector).decode())
                return [piece, self.end("stop")] if output.is_last else [piece]
            case FailedOutput():
                return [self.end("error", code=output.code, error=output.message, param=output.param)]
            case TokenOutput():
                raise ValueError("texts that are to become vectors give no tokens")
            case _:
                assert_never(output)

    def end(
        self, finish_reason: FinishReason, *, code: str = "", error: str = "", param: str | None = None
    ) -> EndPiece:
        """The last chunk, with what was counted."""
        now = time.monotonic()
        began_at = self.began_at or now
        return EndPiece(
            finish_reason=finish_reason,
            usage=Usage(prompt_tokens=self.computed_tokens),
            timings=Timings(wait=began_at - self.taken_at, prefill=now - began_at),
            code=code,
            error=error,
            param=param,
        )
