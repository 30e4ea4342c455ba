"""Where a JSON value ends in streamed text, found without reading any character twice."""

import re

_STRUCTURE = re.compile(r'["{}\[\]:]')
_IN_STRING = re.compile(r'["\\]')


class JsonScan:
    """Follows one object or list from its first bracket on.

    `keys` are the names in the outermost object so far. Text that is no JSON is followed by its brackets and quotes
    all the same.
    """

    __slots__ = ("_at", "_depth", "_in_string", "_last_string", "_string_start", "_text", "keys")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._depth = 0
        self._in_string = False
        self._string_start = 0
        self._last_string = ""
        self.keys: set[str] = set()

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside a string."""
        return self._in_string

    @property
    def text(self) -> str:
        """All that was pushed."""
        return self._text

    def push(self, piece: str) -> int | None:
        """Where the value ends in all that was pushed, None while it goes on."""
        self._text += piece
        while (found := (_IN_STRING if self._in_string else _STRUCTURE).search(self._text, self._at)) is not None:
            if found.group() == "\\" and found.end() == len(self._text):
                self._at = found.start()  # what it escapes is still to come
                return None
            self._at = found.end()
            self._take(found.group())
            if self._depth == 0 and not self._in_string:
                return self._at
        self._at = len(self._text)
        return None

    def _take(self, mark: str) -> None:
        if mark == "\\":
            self._at += 1
        elif mark == '"':
            self._quote()
        elif mark in "{[":
            self._depth += 1
        elif mark in "}]":
            self._depth = max(0, self._depth - 1)
        elif self._depth == 1:
            self.keys.add(self._last_string)

    def _quote(self) -> None:
        if self._in_string:
            self._last_string = self._text[self._string_start : self._at - 1]
        else:
            self._string_start = self._at
        self._in_string = not self._in_string


def ends_in_string(text: str) -> bool:
    """Whether `text`, read as JSON from its first bracket on, ends inside a string."""
    scan = JsonScan()
    bracket = re.search(r"[{\[]", text)
    if bracket is not None:
        scan.push(text[bracket.start() :])
    return scan.in_string
