"""Calls that end where their JSON ends: Mistral's after their marker, Llama's without any."""

import re

from exo.runner.output.segments import Segment, Text
from exo.runner.output.tools.block import Step
from exo.runner.output.tools.calls import ToolSchemas
from exo.runner.output.tools.hermes import call_of, call_with, calls_of
from exo.runner.output.tools.json_scan import JsonScan
from exo.runner.output.tools.json_values import read_json

TOOL_CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"
_NAME = r"[^\s\[\]{}]+"
_HEAD = re.compile(
    rf"\s*(?P<name>{_NAME})\s*(?:\[CALL_ID\]\s*{_NAME}\s*)?(?:\[ARGS\]\s*)?(?=\{{)"  # a name, and an object
    r"|\s*(?=\[\s*[{\]])"  # a list
)
_HEAD_SO_FAR = re.compile(
    rf"\s*(?:{_NAME}\s*(?:\[CALL_ID\]\s*(?:{_NAME}\s*)?)?(?:\[ARGS\]\s*|\[[A-Z_]*)?)?"
    r"|\s*\[\s*"
)
HEAD_MOST = 256
"""Characters before the JSON; what is longer is no head."""
CALL_KEYS = frozenset({"name", "parameters", "arguments", "type", "function", "id"})
"""The keys of a call in JSON; an object with another one is an answer."""


class MistralBlock:
    """`[TOOL_CALLS]` and a JSON list of calls, or a name, `[CALL_ID]` and an id, `[ARGS]` and its arguments."""

    __slots__ = ("_head", "_name", "_scan", "_schemas")

    def __init__(self, schemas: ToolSchemas) -> None:
        self._schemas = schemas
        self._head = ""
        self._name: str | None = None
        self._scan: JsonScan | None = None

    def push(self, piece: str) -> Step:
        """Take more text."""
        if self._scan is None:
            self._head += piece
            match = _HEAD.match(self._head)
            if match is None or match.end() > HEAD_MOST:
                return self._without_head()
            piece = self._head[match.end() :]
            self._head, self._name = self._head[: match.end()], match["name"]
            self._scan = JsonScan()
        end = self._scan.push(piece)
        return Step() if end is None else self._ended(self._scan.text, end)

    def cut(self, by_itself: bool) -> Step:
        """Nothing more comes: a call whose JSON has not ended is text."""
        return Step([Text(self._collected())], "")

    def _without_head(self) -> Step:
        """A head that cannot become one is text."""
        may_become_one = len(self._head) <= HEAD_MOST and _HEAD_SO_FAR.fullmatch(self._head)
        return Step() if may_become_one else Step([Text(TOOL_CALLS)], self._head)

    def _ended(self, text: str, end: int) -> Step:
        try:
            value = read_json(text[:end])
            calls = calls_of(value) if self._name is None else [call_with(self._name, value)]
            segments: list[Segment] = [self._schemas.complete(call) for call in calls]
        except (ValueError, RecursionError):
            return Step([Text(TOOL_CALLS + self._head + text[:end])], text[end:])
        return Step(segments, text[end:])

    def _collected(self) -> str:
        return TOOL_CALLS + self._head + ("" if self._scan is None else self._scan.text)


class BareJsonBlock:
    """An object that is a call if it has a name and parameters. Given up as soon as it has a key that no call has.

    `blank` is what came before it, and is text where the object is.
    """

    __slots__ = ("_blank", "_scan", "_schemas")

    def __init__(self, schemas: ToolSchemas, blank: str) -> None:
        self._schemas = schemas
        self._blank = blank
        self._scan = JsonScan()

    def push(self, piece: str) -> Step:
        """Take more text."""
        end = self._scan.push(piece)
        text = self._scan.text
        if not CALL_KEYS.issuperset(self._scan.keys):
            return Step([Text(self._blank + text[0])], text[1:])
        if end is None:
            return Step()
        try:
            segments: list[Segment] = [self._schemas.complete(call_of(read_json(text[:end]), arguments_needed=True))]
        except (ValueError, RecursionError):
            return Step([Text(self._blank + text[:end])], text[end:])
        return Step(segments, text[end:])

    def cut(self, by_itself: bool) -> Step:
        """Nothing more comes: it is text."""
        return Step([Text(self._blank + self._scan.text)], "")
