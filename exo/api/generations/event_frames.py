"""Streams of server-sent events, for every API that has them: what a writer makes of pieces, with the events' ids."""

from collections.abc import Sequence
from typing import Protocol

from exo.api.generations import sse
from exo.api.generations.answer import GivenPiece
from exo.api.generations.choices import Chosen
from exo.api.generations.event_ids import EventNumbers
from exo.api.generations.generation import Item, Note
from exo.api.http.errors import GenerationFailed, failure
from exo.domain.messages.chunks import EndPiece

Given = GivenPiece | EndPiece
"""What a stream is made of: its end is one with an answer."""


class EventWriter(Protocol):
    """Turns pieces into the events of a stream, each a whole frame without an id.

    What it gives of a choice depends on nothing but what it was given of that choice before: so a stream can be made
    again from the chunks, in whatever order the choices come then.
    """

    def opening(self) -> Sequence[bytes]:
        """What comes before all else."""
        ...

    def events(self, index: int, item: Given) -> Sequence[bytes]:
        """The events for one more piece of the choice at `index`."""
        ...

    def closing(self) -> Sequence[bytes]:
        """What comes after all else. Called when a choice has ended: nothing while another has not."""
        ...

    def failed(self, failed: GenerationFailed) -> bytes:
        """The end of a stream that has begun, where there is no answer. It has no number: a client may come back for
        what it stands in place of."""
        ...


class EventFrames:
    """Turns what comes into a part of the stream's body."""

    __slots__ = ("_numbers", "_opening", "_writer")

    def __init__(self, writer: EventWriter, numbers: EventNumbers) -> None:
        """What is of no choice is numbered with the first one's: it comes before all of it, or after."""
        self._writer = writer
        self._numbers = numbers
        self._opening: bytes = numbers.add(0, writer.opening())

    def frames(self, items: Sequence[Chosen]) -> bytes:
        """The frames for what has come, in one piece."""
        opening, self._opening = self._opening, b""
        return opening + b"".join([self._frame(index, item) for index, item in items])

    def _frame(self, index: int, item: Item) -> bytes:
        if isinstance(item, Note):
            return sse.comment(item.text)
        if not isinstance(item, EndPiece):
            return self._numbers.add(index, self._writer.events(index, item))
        if failed := failure(item):
            return self._writer.failed(failed)
        last = self._numbers.add(index, self._writer.events(index, item))
        return last + self._numbers.add(0, self._writer.closing())
