"""How far a stored response is, by what its chunks and State say."""

from collections.abc import Sequence

from exo.api.context import Api
from exo.api.generations.chunk_order import ChunkOrder
from exo.api.http.errors import GenerationFailed, failure
from exo.api.openai.responses.output import Output
from exo.api.openai.responses.progress import Progress, ended, unanswered
from exo.api.openai.responses.records import ResponseRecord
from exo.bus.chunks import read_chunks
from exo.domain.ids import TaskId
from exo.domain.messages.chunks import ChunkGenerated, EndPiece, Piece, PrefillPiece, VectorPiece
from exo.domain.state import State

JUST_ASKED = 10.0
"""Seconds after which a generation that State has never heard of is lost."""


async def progress_of(api: Api, record: ResponseRecord, now: float) -> Progress:
    """How far it is. `now`: seconds since the epoch. Raises Retryable where NATS stays away."""
    # State first: what is over by it has all its chunks in the stream.
    state = api.state
    return progress_by(state, await read_chunks(api.bus, record.task_id, 0), record, now)


def progress_by(state: State, chunks: Sequence[ChunkGenerated], record: ResponseRecord, now: float) -> Progress:
    """How far it is, by State and its chunks."""
    output = Output(record.task_id)
    for piece in _in_order(chunks):
        if isinstance(piece, EndPiece):
            problem = failure(piece)
            return unanswered(problem, output) if problem else ended(piece, output)
        if not isinstance(piece, PrefillPiece | VectorPiece):
            output.add(piece)
    output.close("incomplete")
    live = state.generations.get(record.task_id)
    if live is not None:
        return Progress("queued" if live.instance_id is None else "in_progress", output.items)
    if now - record.created < JUST_ASKED and _end_of(state, record.task_id) is None:
        return Progress("queued")
    lost = GenerationFailed("output_lost", "the generation is over, and the end of its output is gone")
    return unanswered(_end_of(state, record.task_id) or lost, output)


def _in_order(chunks: Sequence[ChunkGenerated]) -> list[Piece]:
    order = ChunkOrder()
    return [piece for chunk in chunks for piece in order.push(chunk)]


def _end_of(state: State, task_id: TaskId) -> GenerationFailed | None:
    """How a generation ended without an answer."""
    for one in state.ended:
        if one.task_id == task_id and one.finish_reason in ("error", "cancelled"):
            code = "cancelled" if one.finish_reason == "cancelled" else "internal_error"
            return GenerationFailed(code, one.error or f"the generation ended: {one.finish_reason}")
    return None
