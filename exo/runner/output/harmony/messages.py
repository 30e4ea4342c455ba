"""What a Harmony message is to a client: reasoning, answer, or a call."""

import re
from dataclasses import dataclass

from exo.runner.output.segments import Reasoning, Segment, Text
from exo.runner.output.tools.calls import ToolSchemas
from exo.runner.output.tools.hermes import call_with
from exo.runner.output.tools.json_values import read_json

ANALYSIS = "analysis"
FUNCTIONS = "functions."
SUPPRESSED = "!"
"""What a recipient begins with whose messages are for nobody: they count as reasoning."""
_CHANNEL = re.compile(r"<\|channel\|>\s*([^\s<]+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


@dataclass(frozen=True, slots=True)
class Header:
    """Where a message goes."""

    channel: str | None = None
    recipient: str | None = None

    @classmethod
    def read(cls, text: str) -> "Header":
        """The header that stands between `<|start|>` and `<|message|>`; channel and recipient come in any order."""
        channel, recipient = _CHANNEL.search(text), _RECIPIENT.search(text)
        return cls(channel[1] if channel else None, recipient[1] if recipient else None)

    @property
    def is_reasoning(self) -> bool:
        """Whether the message is not for the client."""
        if self.recipient is None:
            return self.channel == ANALYSIS
        return self.recipient.startswith(SUPPRESSED)


class HarmonyMessages:
    """One generation's messages. The recipient decides, then the channel: `commentary` and `final` are the answer."""

    __slots__ = ("_arguments", "_header", "_schemas")

    def __init__(self, schemas: ToolSchemas) -> None:
        self._schemas = schemas
        self._header = Header()
        self._arguments: list[str] | None = None

    @property
    def holds(self) -> bool:
        """Whether a call is on its way."""
        return self._arguments is not None

    def begin(self, header: Header) -> None:
        """A message begins."""
        self._header = header
        is_call = header.recipient is not None and not header.is_reasoning
        self._arguments = [] if is_call else None

    def content(self, text: str) -> list[Segment]:
        """Some more of the message."""
        if not text:
            return []
        if self._arguments is not None:
            self._arguments.append(text)
            return []
        return [Reasoning(text) if self._header.is_reasoning else Text(text)]

    def end(self, is_complete: bool) -> list[Segment]:
        """The message is over; where it is not complete it was cut off."""
        if self._arguments is None:
            return []
        text = "".join(self._arguments)
        self._arguments = None
        try:
            if not is_complete:
                raise ValueError("the call was cut off")
            return [self._call(text)]
        except (ValueError, RecursionError):
            # What a tool of the model's own gets, such as code, is nothing that a client can use.
            is_own = not (self._header.recipient or "").startswith(FUNCTIONS)
            return [Reasoning(text) if is_own else Text(text)] if text else []

    def _call(self, text: str) -> Segment:
        name = (self._header.recipient or "").removeprefix(FUNCTIONS)
        arguments = read_json(text) if text.strip() else {}
        return self._schemas.complete(call_with(name, arguments))
