"""Calls on their way: what stands between the markers of a format is collected here until it is complete."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from exo.runner.output.markers import Hit, first_marker
from exo.runner.output.segments import Call, Segment, Text
from exo.runner.output.tools.calls import ParsedCall, ToolSchemas

BEGINNING = 80
"""Characters of a block that are looked at to tell whether it can be a call."""
CLOSES_PASSED_OVER = 16
"""Closing markers that may stand within one value; so many that the work stays in proportion to the text."""


@dataclass(frozen=True, slots=True)
class Step:
    """What has become certain. `rest` is what follows the block, None while the block goes on."""

    segments: list[Segment] = field(default_factory=list[Segment])
    rest: str | None = None


class Block(Protocol):
    """One block of calls, from its opening marker on."""

    def push(self, piece: str) -> Step:
        """Take more text."""
        ...

    def cut(self, by_itself: bool) -> Step:
        """Nothing more comes: what is complete are calls, the rest is text. The block is over.

        `by_itself`: the model ended, and was not cut off.
        """
        ...


def _closed(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Markup:
    """How a format marks its calls.

    With `item_open` and `item_close` a block has items, and each is a call; without them the whole block is one item.
    """

    open: str
    close: str
    read: Callable[[str], list[ParsedCall]]
    """The calls in an item. Raises ValueError where it cannot be read."""
    item_open: str | None = None
    item_close: str | None = None
    begins: re.Pattern[str] | None = None
    """What every beginning of the block's text matches as a whole; what does not is no call."""
    is_value_open: Callable[[str], bool] = _closed
    """Whether an item's text so far ends within a value, where a closing marker may be part of the value."""
    stray_close: str | None = None
    """A marker that may follow the block, and means nothing there."""


class MarkedBlock:
    """A block between two markers.

    A call comes out as soon as its item is closed. An item that cannot be read comes out as the text that it was, in
    its place; a block without any call as the text that it was, markers and all.
    """

    __slots__ = ("_at", "_called", "_item_at", "_markup", "_passed", "_schemas", "_search_at", "_text", "_unread")

    def __init__(self, markup: Markup, schemas: ToolSchemas) -> None:
        self._markup = markup
        self._schemas = schemas
        self._text = markup.open
        self._at = len(markup.open)
        """How far the text has been used."""
        self._item_at: int | None = None if markup.item_open else self._at
        """Where the item's text begins, None between items."""
        self._search_at = self._at
        self._passed: list[Hit] = []
        """Closing markers that were passed over, because they may be part of a value."""
        self._called = False
        self._unread: list[str] = []
        """Items that could not be read, while it is open whether any can."""

    def push(self, piece: str) -> Step:
        """Take more text."""
        known = len(self._text) - len(self._markup.open)
        self._text += piece
        if known < BEGINNING and not self._can_be_call():
            return Step([Text(self._markup.open)], self._text[len(self._markup.open) :])
        return self._advance([])

    def cut(self, by_itself: bool) -> Step:
        """Nothing more comes. Where the model ended by itself, a closing marker that was passed over was one."""
        step = Step()
        while by_itself and step.rest is None and self._passed:
            step = self._close_item(self._passed[0], step.segments)
            if step.rest is None:
                step = self._advance(step.segments)
        if step.rest is not None:
            return step
        return Step([*step.segments, *self._left_over()], "")

    def _can_be_call(self) -> bool:
        start = len(self._markup.open)
        return self._markup.begins is None or bool(self._markup.begins.fullmatch(self._text, start, start + BEGINNING))

    def _advance(self, segments: list[Segment]) -> Step:
        step = Step(segments)
        while step.rest is None:
            found = self._between(step.segments) if self._item_at is None else self._within(step.segments)
            if found is None:
                return step
            step = found
        return step

    def _between(self, segments: list[Segment]) -> Step | None:
        """Past the next marker between two items. None where there is none yet."""
        markers = [marker for marker in (self._markup.close, self._markup.item_open) if marker]
        hit = first_marker(self._text, markers, self._search_at)
        if hit is None:
            self._wait(max(map(len, markers)))
            return None
        if hit.marker == self._markup.close:
            return self._over(hit.end, segments)
        self._item_at = self._search_at = hit.end
        return Step(segments)

    def _within(self, segments: list[Segment]) -> Step | None:
        """Past the item's end. None where there is none yet."""
        closes = [marker for marker in (self._markup.close, self._markup.item_close) if marker]
        while (hit := first_marker(self._text, closes, self._search_at)) is not None:
            if len(self._passed) < CLOSES_PASSED_OVER and self._markup.is_value_open(self._item(hit.start)):
                self._passed.append(hit)
                self._search_at = hit.end
                continue
            return self._close_item(hit, segments)
        self._wait(max(map(len, closes)))
        return None

    def _wait(self, longest: int) -> None:
        """The end of the text may be the beginning of a marker, and no more than that is searched again."""
        self._search_at = max(self._search_at, len(self._text) - longest + 1)

    def _item(self, end: int) -> str:
        return self._text[self._item_at : end]

    def _close_item(self, close: Hit, segments: list[Segment]) -> Step:
        """The item ends with this closing marker; where it cannot be read so, with the first that was passed over."""
        try:
            calls = [self._schemas.complete(call) for call in self._markup.read(self._item(close.start))]
        except (ValueError, RecursionError):
            if self._passed and close is not self._passed[0]:
                return self._close_item(self._passed[0], segments)
            calls = []
        self._take(calls, self._text[self._at : close.end], segments)
        self._at = self._search_at = close.end
        self._item_at = None
        self._passed = []
        if close.marker == self._markup.close:
            return self._over(close.end, segments)
        return Step(segments)

    def _take(self, calls: list[Call], text: str, segments: list[Segment]) -> None:
        if calls:
            segments += [Text(unread) for unread in self._unread]
            segments += calls
            self._unread = []
            self._called = True
        elif self._called:
            segments.append(Text(text))
        else:
            self._unread.append(text)

    def _over(self, end: int, segments: list[Segment]) -> Step:
        if not self._called:
            segments.append(Text(self._text[:end]))
        return Step(segments, self._text[end:])

    def _left_over(self) -> list[Segment]:
        """What the text's end is where it came before the block's end."""
        if not self._called:
            return [Text(self._text)]
        return [] if self._item_at is None else [Text(self._text[self._at :])]
