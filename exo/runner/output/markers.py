"""Finding markers in streamed text: those that are there, and the end that may be the beginning of one."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hit:
    """A marker in a text, and where it begins."""

    start: int
    marker: str

    @property
    def end(self) -> int:
        """Where what follows it begins."""
        return self.start + len(self.marker)


def first_marker(text: str, markers: Iterable[str], start: int = 0) -> Hit | None:
    """The marker that begins first at or after `start`; of several at one place, the longest."""
    hits = [Hit(at, marker) for marker in markers if (at := text.find(marker, start)) >= 0]
    return min(hits, key=lambda hit: (hit.start, -len(hit.marker)), default=None)


def open_tail(text: str, markers: Iterable[str]) -> int:
    """How many characters at the end of `text`, in which no marker is whole, may be the beginning of one."""
    return max((_open_tail(text, marker) for marker in markers), default=0)


def _open_tail(text: str, marker: str) -> int:
    tail_start = max(0, len(text) - len(marker) + 1)
    at = text.find(marker[0], tail_start)
    while at >= 0:
        if marker.startswith(text[at:]):
            return len(text) - at
        at = text.find(marker[0], at + 1)
    return 0
