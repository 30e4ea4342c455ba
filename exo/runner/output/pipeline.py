"""From a request's tokens to what a client sees. Engine-neutral; one per generation."""

from collections.abc import Sequence
from dataclasses import dataclass

from exo.domain.sampling import FinishReason
from exo.runner.output.blanks import Blanks
from exo.runner.output.segments import Call, Segment, Text
from exo.runner.output.source import TokenSource
from exo.runner.output.stops import StopSequences


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What one token made certain.

    `finished` is set with the last of it; unless the engine finished with the same token, the request still runs
    there and is to be cancelled. `stop_sequence` is the one in the text that ended it. `holds`: some text of this
    token, or of earlier ones, is still to come.
    """

    segments: tuple[Segment, ...] = ()
    finished: FinishReason | None = None
    stop_sequence: str | None = None
    holds: bool = False


class OutputPipeline:
    """Takes a generation's tokens apart, and cuts the answer at the first stop sequence, or after the last call.

    Stop sequences are looked for in the answer only: not in the reasoning, and not in calls. `calls_most`: after so
    many calls the answer is over; None is any number.
    """

    __slots__ = ("_blanks", "_calls", "_calls_most", "_source", "_stop_sequence", "_stops")

    def __init__(self, source: TokenSource, stop: Sequence[str] = (), calls_most: int | None = None) -> None:
        self._source = source
        self._stops = StopSequences(stop)
        self._blanks = Blanks()
        self._calls = 0
        self._calls_most = calls_most
        self._stop_sequence: str | None = None

    def push(self, token: int, finish_reason: FinishReason | None = None) -> PipelineResult:
        """What the engine's next token adds. An end token ("stop") adds no text of its own."""
        read = [] if finish_reason == "stop" else self._source.push(token)
        if finish_reason is not None:
            read += self._source.end(token if finish_reason == "stop" else None)
        segments = self._shown(read)
        if finish_reason is None and not self._is_over:
            return PipelineResult(tuple(segments), holds=self._holds)
        if not self._is_over:
            segments += self._flushed_stops()
        segments += self._blanks.end()
        return PipelineResult(tuple(segments), self._finish(finish_reason), self._stop_sequence)

    @property
    def _holds(self) -> bool:
        return self._source.holds or self._blanks.holds or self._stops.holds

    @property
    def _is_over(self) -> bool:
        """Whether the answer has ended before the model did."""
        return self._stop_sequence is not None or self._calls == self._calls_most

    def _finish(self, finish_reason: FinishReason | None) -> FinishReason:
        ended = "stop" if self._is_over else finish_reason or "stop"
        return "tool_calls" if ended == "stop" and self._calls else ended

    def _shown(self, read: Sequence[Segment]) -> list[Segment]:
        segments: list[Segment] = []
        for segment in read:
            segments += self._past_stops(segment)
            if self._is_over:
                break
        return segments

    def _past_stops(self, segment: Segment) -> list[Segment]:
        if isinstance(segment, Text):
            result = self._stops.push(segment.text)
            self._stop_sequence = result.stop_sequence
            return self._blanks.push(Text(result.text)) if result.text else []
        # No stop sequence goes over a call or over reasoning.
        before = self._flushed_stops()
        self._calls += isinstance(segment, Call)
        return [*before, *self._blanks.push(segment)]

    def _flushed_stops(self) -> list[Segment]:
        held = self._stops.flush()
        return self._blanks.push(Text(held)) if held else []
