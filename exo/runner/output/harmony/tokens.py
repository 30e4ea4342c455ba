"""Harmony read from tokens, by OpenAI's own parser."""

import logging

from exo.runner.output.detokenize import Detokenizer
from exo.runner.output.harmony.messages import HarmonyMessages, Header
from exo.runner.output.harmony.text import CALL, CHANNEL, HEADER_MOST, MARKERS, MESSAGE, START, HarmonyText
from exo.runner.output.harmony.vocabulary import HarmonyParser, NotHarmony
from exo.runner.output.segments import Segment
from exo.runner.output.tools.calls import ToolSchemas

logger = logging.getLogger(__name__)


class HarmonyTokens:
    """One generation's tokens.

    The parser tells where messages begin and where they go, and knows a marker from a text that looks like one. Their
    text is the detokenizer's: the parser loses what follows a broken character. From the first token on that has no
    place by the book, the rest is read as text.
    """

    __slots__ = ("_after_call", "_detokenizer", "_header", "_is_cut", "_lenient", "_messages", "_parser", "_schemas")

    def __init__(self, parser: HarmonyParser, detokenizer: Detokenizer, schemas: ToolSchemas) -> None:
        self._parser = parser
        self._detokenizer = detokenizer
        self._schemas = schemas
        self._messages = HarmonyMessages(schemas)
        self._header: str | None = ""
        """The header so far, None within a message."""
        self._after_call = False
        self._is_cut = False
        self._lenient: HarmonyText | None = None

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet."""
        if self._lenient is not None:
            return self._lenient.holds
        return self._is_cut or bool(self._header) or self._messages.holds

    def push(self, token: int) -> list[Segment]:
        """What has become certain with this token."""
        marker = self._detokenizer.marker(token)
        piece = self._detokenizer.push(token)
        self._is_cut = not piece
        if self._lenient is not None:
            return self._lenient.push(piece)
        if self._header is None and marker in (START, CHANNEL):
            return self._read_as_text(marker)
        try:
            self._parser.process(token)
        except NotHarmony as error:
            logger.info("an answer departs from Harmony, and is read as text from there on: %s", error)
            return self._read_as_text(piece)
        return self._take(marker, piece)

    def end(self, end_token: int | None) -> list[Segment]:
        """What was held back. `end_token`: the one by which the model ended, None where it was cut off."""
        is_marker = end_token is not None and self._detokenizer.marker(end_token) in MARKERS
        segments = self.push(end_token) if end_token is not None and is_marker else []
        if self._header is not None and self._lenient is None:
            segments += self._read_as_text("")
        if self._lenient is not None:
            return [*segments, *self._lenient.end(end_token is not None)]
        return [*segments, *self._messages.end(is_complete=end_token is not None)]

    def _take(self, marker: str, piece: str) -> list[Segment]:
        if self._header is None:
            if not marker:
                return self._messages.content(piece)
            self._header, self._after_call = "", marker == CALL
            return self._messages.end(is_complete=True)
        if marker == MESSAGE:
            self._messages.begin(Header(self._parser.current_channel, self._parser.current_recipient))
            self._header, self._after_call = None, False
            return []
        self._header += "" if marker == START else piece
        return self._read_as_text("") if len(self._header) > HEADER_MOST else []

    def _read_as_text(self, piece: str) -> list[Segment]:
        """Go on without the parser, with what has come of the header."""
        segments = self._messages.end(is_complete=True)
        self._lenient = HarmonyText(self._schemas, self._after_call)
        return [*segments, *self._lenient.push((self._header or "") + piece)]
