"""The items of an answer, grown from its pieces, with the events that tell of it.

One function of the pieces for all who need them: a stream, an answer in one piece, and one that is fetched later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

from exo.api.generations.answer import GivenPiece
from exo.api.openai.responses.shapes import CallItem, ItemStatus, OutputItem, OutputText, ReasoningText
from exo.domain.ids import TaskId
from exo.domain.logprobs import TokenLogprobs
from exo.domain.messages.chunks import ReasoningPiece, TextPiece, ToolCallPiece

Fields = Mapping[str, object]
Event = tuple[str, Fields]
"""The type of an event without `response.`, and what it has besides."""
Kind = Literal["message", "reasoning"]
LastStatus = Literal["completed", "incomplete"]

_ID_PREFIXES: Mapping[str, str] = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
_TEXTS: Mapping[Kind, str] = {"message": "output_text", "reasoning": "reasoning_text"}


@dataclass(slots=True)
class _Growing:
    """A text that is not complete."""

    kind: Kind
    place: Fields
    """What each of its events says: whose part it is."""
    texts: list[str] = field(default_factory=list[str])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])


class Output:
    """The items so far."""

    def __init__(self, task_id: TaskId) -> None:
        self.items: list[OutputItem] = []
        """Those that are complete."""
        self._task_id = task_id
        self._growing: _Growing | None = None

    def add(self, piece: GivenPiece) -> Sequence[Event]:
        """One more piece; the events that tell of it."""
        match piece:
            case TextPiece():
                return self._grow("message", piece.text, piece.logprobs)
            case ReasoningPiece():
                return self._grow("reasoning", piece.text, ())
            case ToolCallPiece():
                return [*self.close("completed"), *self._call(piece)]
            case _:
                assert_never(piece)

    def close(self, status: LastStatus) -> Sequence[Event]:
        """The text that is growing is all there is of it; the events that tell so."""
        growing, self._growing = self._growing, None
        if growing is None:
            return ()
        text = "".join(growing.texts)
        part = _part(growing.kind, text, growing.logprobs)
        item = _text_item(growing.kind, self._id(growing.kind), status, (text, growing.logprobs))
        logprobs = {"logprobs": growing.logprobs} if growing.kind == "message" else {}
        return [
            (f"{_TEXTS[growing.kind]}.done", {**growing.place, "text": text, **logprobs}),
            ("content_part.done", {**growing.place, "part": part}),
            self._done(item),
        ]

    def _grow(self, kind: Kind, text: str, logprobs: Sequence[TokenLogprobs]) -> Sequence[Event]:
        before: Sequence[Event] = ()
        if self._growing is None or self._growing.kind != kind:
            before = [*self.close("completed"), *self._open(kind)]
        assert self._growing is not None  # opened above
        self._growing.texts.append(text)
        self._growing.logprobs += logprobs
        more = {"logprobs": logprobs} if kind == "message" else {}
        return [*before, (f"{_TEXTS[kind]}.delta", {**self._growing.place, "delta": text, **more})]

    def _open(self, kind: Kind) -> Sequence[Event]:
        identifier, index = self._id(kind), len(self.items)
        self._growing = _Growing(kind, {"item_id": identifier, "output_index": index, "content_index": 0})
        item = _text_item(kind, identifier, "in_progress")
        return [
            ("output_item.added", {"output_index": index, "item": item}),
            ("content_part.added", {**self._growing.place, "part": _part(kind, "", [])}),
        ]

    def _call(self, call: ToolCallPiece) -> Sequence[Event]:
        """A call comes whole: its arguments are known to be JSON only when they are complete."""
        identifier = self._id("function_call")
        place = {"item_id": identifier, "output_index": len(self.items)}
        begun: CallItem = {
            "id": identifier,
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": "",
            "status": "in_progress",
        }
        return [
            ("output_item.added", {**place, "item": begun}),
            ("function_call_arguments.delta", {**place, "delta": call.arguments}),
            ("function_call_arguments.done", {**place, "name": call.name, "arguments": call.arguments}),
            self._done({**begun, "arguments": call.arguments, "status": "completed"}),
        ]

    def _done(self, item: OutputItem) -> Event:
        self.items.append(item)
        return "output_item.done", {"output_index": len(self.items) - 1, "item": item}

    def _id(self, kind: str) -> str:
        return f"{_ID_PREFIXES[kind]}{self._task_id}_{len(self.items)}"


def _text_item(
    kind: Kind, identifier: str, status: ItemStatus, told: tuple[str, Sequence[TokenLogprobs]] | None = None
) -> OutputItem:
    """`told`: its text and logprobs; None: there is none yet."""
    if kind == "reasoning":
        thought = [] if told is None else [_reasoning(told[0])]
        return {"id": identifier, "type": kind, "summary": [], "content": thought, "status": status}
    said = [] if told is None else [_text(*told)]
    return {"id": identifier, "type": kind, "role": "assistant", "content": said, "status": status}


def _part(kind: Kind, text: str, logprobs: Sequence[TokenLogprobs]) -> ReasoningText | OutputText:
    return _reasoning(text) if kind == "reasoning" else _text(text, logprobs)


def _reasoning(text: str) -> ReasoningText:
    return {"type": "reasoning_text", "text": text}


def _text(text: str, logprobs: Sequence[TokenLogprobs]) -> OutputText:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
