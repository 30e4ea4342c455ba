"""Reads a model's text as it comes: answer, reasoning between tags, and calls of tools."""

import re

from exo.models.output_format import OutputFormat
from exo.runner.output.markers import Hit, first_marker, open_tail
from exo.runner.output.segments import Call, Reasoning, Segment, Text
from exo.runner.output.tools.block import Block, Step
from exo.runner.output.tools.calls import ToolSchemas
from exo.runner.output.tools.formats import SYNTAXES, ToolSyntax

_NO_TOOLS = ToolSyntax(openers={}, strays={})
LEAD_MOST = 256
"""White space before a call without a marker; after more of it a brace is text."""
_LEAD = re.compile(r"\s*")
_BETWEEN_CALLS = re.compile(r"[\s;]*")


class TextReader:
    """One generation's text, taken apart.

    What comes out does not depend on how the text is cut into pieces. Text is held back only while it may be the
    beginning of a marker, or may belong to a call. A call within the reasoning ends it.
    """

    __slots__ = (
        "_block",
        "_called",
        "_close",
        "_held",
        "_inside",
        "_lead",
        "_open",
        "_opener",
        "_passed",
        "_schemas",
        "_strays",
        "_syntax",
    )

    def __init__(self, form: OutputFormat, schemas: ToolSchemas) -> None:
        self._syntax = SYNTAXES[form.tools] if form.tools else _NO_TOOLS
        self._schemas = schemas
        self._open = form.think.open if form.think else ""
        self._close = form.think.close if form.think else ""
        self._inside = form.starts_inside
        self._held = ""
        self._block: Block | None = None
        self._opener = ""
        """What opened the block, or did last."""
        self._passed = ""
        """What went into a block that began within the reasoning."""
        self._strays: set[str] = set()
        """Markers that mean nothing when they come next: what they would close has been closed."""
        self._lead = self._syntax.bare is not None
        """Whether a brace, coming next, would begin a call."""
        self._called = False

    @property
    def holds(self) -> bool:
        """Whether some text has not come out yet."""
        return self._block is not None or bool(self._held)

    def push(self, piece: str) -> list[Segment]:
        """What has become certain with this piece."""
        segments: list[Segment] = []
        rest: str | None = piece
        while rest is not None:
            rest = self._beside(rest, segments) if self._block is None else self._within(self._block, rest, segments)
        return segments

    def end(self, by_itself: bool) -> list[Segment]:
        """What was held back. `by_itself`: the model ended, and was not cut off."""
        segments: list[Segment] = []
        while self._block is not None:
            rest = self._after(self._block.cut(by_itself), segments)
            segments += self.push(rest or "")
        held, self._held = self._held, ""
        self._show(held, segments)
        return segments

    def _beside(self, piece: str, segments: list[Segment]) -> str | None:
        """Text outside of calls, up to the next marker. What follows it, None where there is none."""
        text, self._held = self._held + piece, ""
        if self._lead and not self._inside:
            if (found := self._bare_call(text)) is not None:
                return found
            if self._held:
                return None
        markers = self._markers()
        hit = first_marker(text, markers)
        if hit is None:
            certain = len(text) - open_tail(text, markers)
            self._held = text[certain:]
            self._show(text[:certain], segments)
            return None
        self._show(text[: hit.start], segments)
        self._pass(hit)
        return text[hit.end :]

    def _bare_call(self, text: str) -> str | None:
        """What belongs to a call that begins without a marker; holds what may come before one."""
        match = (_BETWEEN_CALLS if self._called else _LEAD).match(text)
        blank = match.end() if match else 0
        if blank > LEAD_MOST:
            self._lead = False
        elif blank == len(text):
            self._held = text
        elif text[blank] == "{" and self._syntax.bare is not None:
            self._block = self._syntax.bare(self._schemas, text[:blank])
            return text[blank:]
        return None

    def _markers(self) -> tuple[str, ...]:
        if not self._open:
            return (*self._syntax.markers, *self._strays)
        if self._inside:
            return (self._close, self._open, *self._syntax.markers)
        return (self._open, *self._syntax.markers, *self._strays)

    def _pass(self, hit: Hit) -> None:
        """Whatever a marker means. None of them is shown."""
        if hit.marker in self._syntax.openers:
            self._block = self._syntax.openers[hit.marker](self._schemas)
            self._opener = self._passed = hit.marker
        elif hit.marker in self._syntax.ignored:
            self._lead = self._syntax.bare is not None
        elif hit.marker in self._strays:
            self._strays.discard(hit.marker)
        elif hit.marker == self._open:
            self._inside = True
        elif hit.marker == self._close:
            self._inside = False

    def _within(self, block: Block, piece: str, segments: list[Segment]) -> str | None:
        if not self._inside:
            return self._after(block.push(piece), segments)
        before = len(self._passed)
        self._passed += piece
        close = self._passed.find(self._close, max(0, before - len(self._close) + 1)) if self._close else -1
        if close < 0:
            return self._after(block.push(piece), segments)
        rest = self._after(block.push(self._passed[before : max(before, close)]), segments)
        if rest is None and self._inside:
            # The reasoning's end is more certain than a call that it would be part of.
            self._block = None
            self._show(self._passed[:close], segments)
            return self._passed[close:]
        return (rest or "") + self._passed[max(before, close) :]

    def _after(self, step: Step, segments: list[Segment]) -> str | None:
        """What a block gave. What follows it, None while it goes on."""
        for segment in step.segments:
            if isinstance(segment, Text):
                self._show(segment.text, segments)
            else:
                self._end_reasoning()
                self._called = True
                segments.append(segment)
                if stray := self._syntax.strays.get(self._opener):
                    self._strays.add(stray)
        if step.rest is not None:
            self._block = None
            self._lead = self._syntax.bare is not None and any(isinstance(one, Call) for one in step.segments)
        return step.rest

    def _end_reasoning(self) -> None:
        if self._inside:
            self._inside = False
            self._strays.add(self._close)

    def _show(self, text: str, segments: list[Segment]) -> None:
        if not text:
            return
        if self._inside:
            segments.append(Reasoning(text))
        else:
            self._lead = False
            segments.append(Text(text))
