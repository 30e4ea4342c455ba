"""White space around calls, which is part of neither: models put each call on lines of its own."""

from exo.runner.output.segments import Call, Segment, Text


class Blanks:
    """Holds white space where an answer begins and after each call, until it is known what follows.

    With text it comes out as it was; before a call, and at the end after one, it does not come out.
    """

    __slots__ = ("_called", "_held", "_leading")

    def __init__(self) -> None:
        self._held = ""
        self._leading = True
        self._called = False

    def push(self, segment: Segment) -> list[Segment]:
        """The segment, and what was held before it."""
        if isinstance(segment, Call):
            self._held, self._leading, self._called = "", True, True
            return [segment]
        if not isinstance(segment, Text) or not self._leading:
            return [segment]
        text = self._held + segment.text
        if text.isspace():
            self._held = text
            return []
        self._held, self._leading = "", False
        return [Text(text)]

    def end(self) -> list[Segment]:
        """What was held, at the generation's end."""
        held, self._held = self._held, ""
        return [Text(held)] if held and not self._called else []

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet."""
        return bool(self._held)
