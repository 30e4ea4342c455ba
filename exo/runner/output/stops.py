"""Stop sequences in streamed text: what is certainly before the first one comes out, as early as it can."""

from collections.abc import Sequence
from dataclasses import dataclass

from exo.runner.output.markers import open_tail


@dataclass(frozen=True, slots=True)
class StopResult:
    """Text that may be shown, and the stop sequence that was hit, if one was."""

    text: str
    stop_sequence: str | None = None


class StopSequences:
    """Cuts one generation's text at the first stop sequence, no part of which is ever emitted.

    The first is the one that is complete first, reading character by character; of those that end at the same
    character, the longest. So the result does not depend on how the text is cut into pieces. Empty stop sequences
    are ignored.
    """

    __slots__ = ("_held", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet."""
        return bool(self._held)

    def push(self, piece: str) -> StopResult:
        """The text that is now certain. After a result with a stop sequence the generation is over: push no more."""
        if not self._stops:
            return StopResult(piece)
        text = self._held + piece
        hit = self._first(text)
        if hit is not None:
            self._held = ""
            start, stop = hit
            return StopResult(text[:start], stop)
        certain = len(text) - open_tail(text, self._stops)
        self._held = text[certain:]
        return StopResult(text[:certain])

    def flush(self) -> str:
        """The text that was held back as the possible beginning of a stop sequence, at the generation's end."""
        held, self._held = self._held, ""
        return held

    def _first(self, text: str) -> tuple[int, str] | None:
        """Where the first stop sequence in `text` begins, and which it is."""
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if not found:
            return None
        _, start, stop = min(found)
        return start, stop
