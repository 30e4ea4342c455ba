"""Where a generation's segments come from: its tokens, detokenized and read."""

from typing import Protocol

from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.segments import Segment


class Reader(Protocol):
    """Takes a generation's text apart."""

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet."""
        ...

    def push(self, piece: str) -> list[Segment]:
        """What has become certain with this piece of text."""
        ...

    def end(self, by_itself: bool) -> list[Segment]:
        """What was held back. `by_itself`: the model ended, and was not cut off."""
        ...


class TokenSource(Protocol):
    """Takes a generation's tokens apart."""

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet."""
        ...

    def push(self, token: int) -> list[Segment]:
        """What has become certain with this token."""
        ...

    def end(self, end_token: int | None) -> list[Segment]:
        """What was held back. `end_token`: the one by which the model ended, None where it was cut off."""
        ...


class ReadText:
    """The text of a generation's tokens, taken apart by a reader."""

    __slots__ = ("_detokenizer", "_is_cut", "_reader")

    def __init__(self, detokenizer: Detokenizer, reader: Reader) -> None:
        self._detokenizer = detokenizer
        self._reader = reader
        self._is_cut = False

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet, a character that is cut over tokens included."""
        return self._is_cut or self._reader.holds

    def push(self, token: int) -> list[Segment]:
        """What has become certain with this token."""
        piece = self._detokenizer.push(token)
        self._is_cut = not piece
        return self._reader.push(piece) if piece else []

    def end(self, end_token: int | None) -> list[Segment]:
        """What was held back. An end token has no text of its own, but it may be a marker."""
        marker = "" if end_token is None else self._detokenizer.marker(end_token)
        segments = self._reader.push(marker) if marker else []
        return [*segments, *self._reader.end(end_token is not None)]
