"""A generation's items as the events of Anthropic's stream: a message that begins, its blocks, its end."""

from collections.abc import Sequence
from typing import Literal, assert_never

from pydantic_core import to_json

from exo.api.anthropic.answers import ending_of, head_of, signature_of, usage_of
from exo.api.generations import sse
from exo.api.generations.choices import Chosen
from exo.api.generations.generation import Item, Note
from exo.api.http.dialects import anthropic_error
from exo.api.http.errors import failure
from exo.domain.ids import ModelId, TaskId
from exo.domain.messages.chunks import EndPiece, ReasoningPiece, TextPiece, ToolCallPiece
from exo.domain.sampling import Usage


class EventWriter:
    """Writes the events of one stream. A block is open from its first item to the first of another kind."""

    __slots__ = ("_begun", "_block", "_head", "_index", "_max_tokens", "_request_id", "_shows_thinking", "_signature")

    def __init__(
        self, task_id: TaskId, model_id: ModelId, request_id: str, *, max_tokens: int, shows_thinking: bool
    ) -> None:
        self._head = head_of(task_id, model_id)
        self._signature = signature_of(task_id)
        self._request_id = request_id
        self._max_tokens = max_tokens
        self._shows_thinking = shows_thinking
        self._begun = False
        self._block: Literal["text", "thinking"] | None = None
        """The one that is open."""
        self._index = 0
        """Of the block that is open, or comes next."""

    def frames(self, items: Sequence[Chosen]) -> bytes:
        """The events for what has come, in one piece; an EndPiece's are the stream's last."""
        return b"".join([self._beginning() + self._frame(item) for _, item in items])

    def _frame(self, item: Item) -> bytes:
        match item:
            case TextPiece():
                return self._in_block("text", {"text": ""}) + self._delta("text_delta", text=item.text)
            case ReasoningPiece():
                return self._thought(item)
            case ToolCallPiece():
                return self._call(item)
            case Note():
                return sse.comment(item.text) + sse.event("ping", b'{"type":"ping"}')
            case EndPiece():
                return self._end(item)
            case _:
                assert_never(item)

    def _beginning(self) -> bytes:
        """The message, still empty. How long its prompt is, is known at the end."""
        if self._begun:
            return b""
        self._begun = True
        empty: dict[str, object] = {"content": [], "stop_reason": None, "stop_sequence": None}
        message = {**self._head, **empty, "usage": usage_of(Usage())}
        return _event("message_start", message=message)

    def _thought(self, piece: ReasoningPiece) -> bytes:
        opening = self._in_block("thinking", {"thinking": "", "signature": ""})
        return opening + self._delta("thinking_delta", thinking=piece.text) if self._shows_thinking else opening

    def _call(self, call: ToolCallPiece) -> bytes:
        block: dict[str, object] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        before = self._closed() + _event("content_block_start", index=self._index, content_block=block)
        return before + self._delta("input_json_delta", partial_json=call.arguments) + self._stop()

    def _in_block(self, kind: Literal["text", "thinking"], empty: dict[str, object]) -> bytes:
        """What it takes for a block of this kind to be open."""
        if self._block == kind:
            return b""
        before = self._closed()
        self._block = kind
        return before + _event("content_block_start", index=self._index, content_block={"type": kind, **empty})

    def _closed(self) -> bytes:
        """What it takes for no block to be open."""
        if self._block is None:
            return b""
        last = self._delta("signature_delta", signature=self._signature) if self._block == "thinking" else b""
        self._block = None
        return last + self._stop()

    def _stop(self) -> bytes:
        self._index += 1
        return _event("content_block_stop", index=self._index - 1)

    def _end(self, end: EndPiece) -> bytes:
        if failed := failure(end):
            return sse.event("error", anthropic_error(failed.problem, self._request_id))
        last = _event("message_delta", delta=ending_of(end, self._max_tokens), usage=usage_of(end.usage))
        return self._closed() + last + _event("message_stop")

    def _delta(self, kind: str, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})


def _event(kind: str, **fields: object) -> bytes:
    return sse.event(kind, to_json({"type": kind, **fields}))
