"""One generation as its client sees it: ordered output, signs of life, and exactly one end."""

import asyncio
from collections.abc import Callable
from typing import assert_never

from exo.api.generations.chunk_order import ChunkOrder
from exo.api.metrics.pace import Pace
from exo.domain import limits
from exo.domain.ids import MessageId, ModelId, TaskId
from exo.domain.messages.chunks import (
    ChunkGenerated,
    EndPiece,
    Piece,
    PrefillPiece,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    VectorPiece,
)
from exo.domain.messages.events import GenerationFinished
from exo.domain.sampling import Timings, Usage

NOTE_FIRST = 2.0
"""Seconds of silence before the first sign of life, if a master has taken it on. Until then an error still gets an
HTTP status of its own: a refusal always has one, however late it comes."""
NOTE_EVERY = 10.0
"""Seconds of silence before each further one."""
ANSWER = 15.0
"""Seconds that a master has to accept or refuse."""
GAP = 0.3
"""Seconds to wait for a missing chunk before the stream is read."""
GRACE = 2.0
"""Seconds that the last chunk may come after the event that the generation is over."""
LOST = 30.0
"""Seconds after that event until the output that is missing is given up."""
LONGEST = limits.QUEUED + limits.RUNNING + 2 * limits.CANCELLING
"""Seconds after which a generation is over for its client, even if no master says so."""


class Note:
    """A sign of life while there is nothing to send."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


Item = TextPiece | ReasoningPiece | ToolCallPiece | EndPiece | Note


class Generation:
    """Fed with chunks, events and the time, and read by one reader. Times by one monotonic clock, seconds.

    `pace` measures when its pieces come; None where they came long ago.
    """

    def __init__(
        self,
        task_id: TaskId,
        model_id: ModelId,
        now: float,
        describe: Callable[[], str],
        pace: Pace | None = None,
        *,
        in_background: bool = False,
    ) -> None:
        self.task_id = task_id
        self.model_id = model_id
        self.in_background = in_background
        """Whether it goes on when nobody reads it any more."""
        self._describe = describe
        self._pace = pace
        self.vectors: dict[int, str] = {}
        """What texts became, by their indexes. They are no items: nobody has a use for them before the end."""
        self.command_id: MessageId | None = None
        """By which the master's refusal names it."""
        self.load_seconds = 0.0
        """Of its time, what went by until its model was loaded."""
        self.is_over = False
        """Whether its end is among the items, or was."""
        self.arrived = asyncio.Event()
        """Set when an item is there; its reader clears it. A reader of several generations gives them one."""
        self.ended_elsewhere = False
        """Whether the cluster knows of the end, so that there is nothing to cancel."""
        self._answered = asyncio.Event()
        """Set when a master has taken it on, or it is over."""
        self._is_accepted = False
        self._order = ChunkOrder()
        self._items: list[Item] = []
        self._opened_at = now
        self._asked_at: float | None = None
        self._note_at = now + NOTE_FIRST
        self._prefill = ""
        self._gap_at: float | None = None
        self._finished_at: float | None = None
        self._fetched_after_end = False

    @property
    def next_index(self) -> int:
        """The chunk that comes next."""
        return self._order.next_index

    def taken(self) -> list[Item]:
        """What has come since the last call. The last one is an EndPiece."""
        items, self._items = self._items, []
        return items

    async def answered(self) -> None:
        """Wait until a master has taken it on, or it is over."""
        await self._answered.wait()

    @property
    def is_accepted(self) -> bool:
        """Whether a master has taken it on."""
        return self._is_accepted

    def accept(self) -> None:
        """A master has taken it on."""
        self._is_accepted = True
        self._answered.set()

    @property
    def is_asked(self) -> bool:
        """Whether its command may be in the master's inbox."""
        return self._asked_at is not None

    def asked(self, now: float) -> None:
        """The command is on its way to the master."""
        self._asked_at = now

    def receive(self, chunk: ChunkGenerated, now: float) -> None:
        """One more chunk."""
        self.accept()
        for piece in self._order.push(chunk):
            self._take(piece, now)
        self._gap_at = (self._gap_at or now + GAP) if self._order.has_gap else None

    def finished(self, event: GenerationFinished, now: float) -> None:
        """The log says that it is over. Its last chunk may still be on the way, unless no runner sent one."""
        if self.is_over:
            return
        self.ended_elsewhere = True
        self.accept()
        if event.finish_reason in ("error", "cancelled"):
            code = event.code or ("cancelled" if event.finish_reason == "cancelled" else "internal_error")
            self.end(code, event.error or f"the generation ended: {event.finish_reason}")
        else:
            self._finished_at = self._finished_at or now

    def end(self, code: str, reason: str, retry_after: int | None = None) -> None:
        """End it here with an error; after its end nothing more comes."""
        if not self.is_over:
            end = EndPiece(
                finish_reason="cancelled" if code == "cancelled" else "error",
                usage=Usage(),
                timings=Timings(),
                code=code,
                error=reason,
                retry_after=retry_after,
            )
            self._add(end)
            self.is_over = True
            self._answered.set()

    def tick(self, now: float) -> bool:
        """Let time pass. Whether chunks are missing that have to be read from the stream."""
        if self.is_over:
            return False
        if now >= self._note_at and self._is_accepted:
            self._note_at = now + NOTE_EVERY
            if not self._items:
                self._add(Note(self._prefill or self._describe()))
        self._check_deadlines(now)
        return not self.is_over and self._misses_chunks(now)

    def fetched(self, chunks: list[ChunkGenerated], now: float) -> None:
        """What the stream holds of it from the first missing chunk on."""
        for chunk in chunks:
            self.receive(chunk, now)
        if self._fetched_after_end:
            self.end("output_lost", "the end of the output was lost on the way")
        self._gap_at = now + GRACE if self._order.has_gap else None

    def _take(self, piece: Piece, now: float) -> None:
        if self.is_over:
            return
        match piece:
            case TextPiece() | ReasoningPiece() | ToolCallPiece():
                self._note_at = now + NOTE_EVERY
                if self._pace is not None:
                    self._pace.mark(now)
                self._add(piece)
            case VectorPiece():
                self.vectors[piece.index] = piece.vector
            case PrefillPiece():
                self._prefill = f"prefill {piece.done}/{piece.total}"
            case EndPiece():
                self.is_over = self.ended_elsewhere = True
                self._add(piece)
            case _:
                assert_never(piece)

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self.arrived.set()

    def _check_deadlines(self, now: float) -> None:
        if not self._is_accepted and self._asked_at is not None and now - self._asked_at > ANSWER:
            self.end("no_master", f"no master has answered within {ANSWER:.0f} s")
        elif now - self._opened_at > LONGEST:
            self.end("timeout", f"the generation took longer than {LONGEST:.0f} s")
        elif self._finished_at is not None and now - self._finished_at > LOST:
            self.end("output_lost", "the generation is over, and its output could not be read")

    def _misses_chunks(self, now: float) -> bool:
        self._fetched_after_end = self._finished_at is not None and now - self._finished_at >= GRACE
        return self._fetched_after_end or (self._gap_at is not None and now >= self._gap_at)
