"""One generation in a runner: from the engine's tokens to chunks, and what is counted on the way."""

import time
from dataclasses import dataclass, field
from typing import assert_never

from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import EndPiece, Piece, PrefillPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.messages.tasks import GenerateTask
from exo.domain.prefill import PrefillAttempt
from exo.domain.sampling import FinishReason, Timings, Usage
from exo.runner.engines.base import EngineOutput, FailedOutput, PrefillOutput, TokenOutput, VectorOutput
from exo.runner.output.pipeline import OutputPipeline
from exo.runner.output.segments import Call, Reasoning, Segment, Text

CALL_ID_CHARACTERS = 24
"""Of the task's id in the ids of its calls: enough for them to be unique, and OpenAI allows 40 in all."""


@dataclass(slots=True)
class Generation:
    """A generation that the engine runs. Times are monotonic, seconds."""

    task: GenerateTask
    pipeline: OutputPipeline
    prompt_tokens: int
    taken_at: float
    echo: str = ""
    """What the answer begins with, before the model says anything."""
    attempt: PrefillAttempt | None = None
    """What came of asking another instance for the prompt's state."""
    held: int = 0
    """Tokens that the engine held before that state came."""
    completion_tokens: int = 0
    cached_tokens: int = 0
    prefill_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    reasoning_tokens: int = 0
    text: list[str] = field(default_factory=list[str])
    _unread_tokens: int = 0
    """Tokens whose text has not come out yet."""
    _calls: int = 0
    _logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    """Of tokens whose text has not come out yet."""

    @property
    def said(self) -> str:
        """The answer so far."""
        return "".join(self.text)

    def take(self, output: EngineOutput) -> list[Piece]:
        """The chunks of one more output of the engine; the last is an EndPiece when it was the last output."""
        match output:
            case TokenOutput():
                return self.take_token(output)
            case PrefillOutput():
                return self.take_prefill(output)
            case FailedOutput():
                return self.take_failure(output)
            case VectorOutput():
                raise ValueError("a text that is continued gives no vectors")
            case _:
                assert_never(output)

    def take_prefill(self, output: PrefillOutput) -> list[Piece]:
        """The chunk of a prompt that takes several slices; none for one that is computed at once."""
        if self.prefill_at is None:
            self.prefill_at = time.monotonic()
        self.cached_tokens = output.cached
        return [PrefillPiece(done=output.done, total=output.total)] if output.done < output.total else []

    def take_token(self, output: TokenOutput) -> list[Piece]:
        """The chunks that one more token makes certain; the last is an EndPiece when it was the last token."""
        now = time.monotonic()
        pieces: list[Piece] = [TextPiece(text=self.echo)] if self.echo and self.first_token_at is None else []
        self.first_token_at = self.first_token_at or now
        self.last_token_at = now
        self.completion_tokens += 1
        result = self.pipeline.push(output.token, output.finish_reason)
        self._unread_tokens += 1
        if output.logprobs is not None and output.finish_reason != "stop":
            self._logprobs.append(output.logprobs)
        pieces += [self._piece(segment) for segment in result.segments]
        if not result.holds:
            self._unread_tokens = 0
            self._logprobs.clear()
        if result.finished is not None:
            pieces.append(self.end(result.finished, stop_sequence=result.stop_sequence))
        return pieces

    def _piece(self, segment: Segment) -> Piece:
        """The chunk of a segment. All tokens since the last one count as its own."""
        unread, self._unread_tokens = self._unread_tokens, 0
        logprobs, self._logprobs = tuple(self._logprobs), []
        match segment:
            case Text():
                self.text.append(segment.text)
                return TextPiece(text=segment.text, logprobs=logprobs)
            case Reasoning():
                self.reasoning_tokens += unread
                return ReasoningPiece(text=segment.text)
            case Call():
                return self._call(segment)
            case _:
                assert_never(segment)

    def _call(self, call: Call) -> ToolCallPiece:
        index, self._calls = self._calls, self._calls + 1
        call_id = f"call_{self.task.task_id[-CALL_ID_CHARACTERS:]}_{index}"
        return ToolCallPiece(index=index, id=call_id, name=call.name, arguments=call.arguments)

    def take_failure(self, output: FailedOutput) -> list[Piece]:
        """The last chunk of a generation that failed alone. A prompt of which nothing was computed costs nothing."""
        if self.prefill_at is None and self.first_token_at is None:
            self.prompt_tokens = 0
        return [self.end("error", code=output.code, error=output.message, param=output.param)]

    def end(
        self,
        finish_reason: FinishReason,
        *,
        stop_sequence: str | None = None,
        code: str = "",
        error: str = "",
        param: str | None = None,
    ) -> EndPiece:
        """The last chunk, with what was counted."""
        return EndPiece(
            finish_reason=finish_reason,
            usage=Usage(
                prompt_tokens=self.prompt_tokens,
                completion_tokens=self.completion_tokens,
                cached_tokens=self.cached_tokens,
                reasoning_tokens=self.reasoning_tokens,
            ),
            timings=self._timings(),
            stop_sequence=stop_sequence,
            code=code,
            error=error,
            param=param,
            prefill=self._prefill(),
        )

    def _prefill(self) -> PrefillAttempt | None:
        """What another instance did for it. A state that came is of use only where the engine took it in."""
        attempt = self.attempt
        if attempt is None or attempt.error or self.prefill_at is None:
            return attempt
        tokens = min(attempt.tokens, self.cached_tokens) if self.cached_tokens > self.held else 0
        return attempt.replaced({"tokens": tokens, "error": "" if tokens else "the engine here did not take its state"})

    def _timings(self) -> Timings:
        if self.first_token_at is None or self.last_token_at is None:
            return Timings(wait=time.monotonic() - self.taken_at)
        prefill_at = self.prefill_at or self.taken_at
        return Timings(
            wait=max(0.0, prefill_at - self.taken_at),
            prefill=max(0.0, self.first_token_at - prefill_at),
            decode=self.last_token_at - self.first_token_at,
        )
