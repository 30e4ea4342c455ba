"""From a request's tokens to the text that a client sees. Engine-neutral; one per generation."""

from collections.abc import Sequence
from dataclasses import dataclass

from exo.domain.sampling import FinishReason
from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.stops import StopSequences


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """Text that one token made certain.

    `finished` is set with the last of it. `stop_sequence` is set when that was a stop sequence in the text; unless
    the engine finished with the same token, the request still runs there and is to be cancelled.
    """

    text: str
    finished: FinishReason | None = None
    stop_sequence: str | None = None


class OutputPipeline:
    """Detokenizes, and cuts at the first stop sequence."""

    __slots__ = ("_detokenizer", "_stops")

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._stops = StopSequences(stop)

    def push(self, token: int, finish_reason: FinishReason | None = None) -> PipelineResult:
        """What the engine's next token adds. An end token ("stop") adds no text of its own."""
        piece = "" if finish_reason == "stop" else self._detokenizer.push(token)
        result = self._stops.push(piece)
        if result.stop_sequence is not None:
            return PipelineResult(result.text, "stop", result.stop_sequence)
        if finish_reason is None:
            return PipelineResult(result.text)
        return PipelineResult(result.text + self._stops.flush(), finish_reason)
