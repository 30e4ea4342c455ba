"""Harmony read from text in which its special tokens stand as markers. Takes what a strict reader refuses."""

from exo.runner.output.harmony.messages import HarmonyMessages, Header
from exo.runner.output.markers import first_marker, open_tail
from exo.runner.output.segments import Segment, Text
from exo.runner.output.tools.calls import ToolSchemas

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL)
HEADER_MOST = 200
"""Characters of a header without any marker; a longer one is an answer of a model that does without Harmony."""


class HarmonyText:
    """One generation's text. It begins in a header, since the prompt ends in `<|start|>assistant`."""

    __slots__ = ("_after_call", "_header", "_held", "_messages")

    def __init__(self, schemas: ToolSchemas, after_call: bool = False) -> None:
        self._messages = HarmonyMessages(schemas)
        self._held = ""
        self._header: str | None = ""
        """The header so far, None within a message."""
        self._after_call = after_call
        """Whether what comes follows a call, where nothing but a message has a meaning."""

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet."""
        return bool(self._held) or bool(self._header) or self._messages.holds

    def push(self, piece: str) -> list[Segment]:
        """What has become certain with this piece."""
        text = self._held + piece
        segments: list[Segment] = []
        at = 0
        while (hit := first_marker(text, MARKERS, at)) is not None:
            segments += self._take(text[at : hit.start])
            segments += self._mark(hit.marker)
            at = hit.end
        certain = len(text) - open_tail(text[at:], MARKERS)
        self._held = text[certain:]
        return [*segments, *self._take(text[at:certain])]

    def end(self, by_itself: bool) -> list[Segment]:
        """What was held back. `by_itself`: the model ended, and was not cut off."""
        held, self._held = self._held, ""
        segments = self._take(held)
        return [*segments, *(self._messages.end(by_itself) if self._header is None else self._headless())]

    def _take(self, text: str) -> list[Segment]:
        if self._header is None:
            return self._messages.content(text)
        self._header += text
        if len(self._header) > HEADER_MOST and not self._after_call and "<|" not in self._header:
            return self._headless()
        return []

    def _mark(self, marker: str) -> list[Segment]:
        if self._header is None:
            return self._mark_in_message(marker)
        if marker == MESSAGE:
            self._messages.begin(Header.read(self._header))
            self._header, self._after_call = None, False
            return []
        if marker in (CHANNEL, CONSTRAIN):
            self._header += marker
            return []
        segments = self._headless()
        self._header = ""
        return segments

    def _mark_in_message(self, marker: str) -> list[Segment]:
        if marker in (MESSAGE, CONSTRAIN):
            return []
        self._header = marker if marker == CHANNEL else ""
        self._after_call = marker == CALL
        return self._messages.end(is_complete=True)

    def _headless(self) -> list[Segment]:
        """Text that stands where a header should, and is none, is an answer."""
        header, self._header = self._header or "", None
        self._messages.begin(Header())
        is_header = "<|" in header or "to=" in header or header.strip() in ("", "assistant")
        return [] if is_header or self._after_call else [Text(header)]
