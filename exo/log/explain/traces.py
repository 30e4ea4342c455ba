"""Where the time of a generation went: spans, from its events and from what rank 0 measured."""

from typing import NamedTuple

from sqlalchemy import select

from exo.domain.instance import Instance
from exo.domain.messages.events import GenerationDispatched, GenerationFinished, InstancePlaced
from exo.domain.prefill import PrefillAttempt
from exo.errors import Rejected
from exo.log import tables as t
from exo.log.explain.entities import Entity
from exo.log.explain.searching import Filter, first_matching, last_matching
from exo.log.projection import GenerationRow
from exo.log.reading import LogReader


class Span(NamedTuple):
    """A part of a generation's time."""

    name: str
    parent: str | None
    start: float
    """Seconds since the epoch."""
    seconds: float | None
    """None: it is not over."""


class Trace(NamedTuple):
    """One generation."""

    generation: GenerationRow
    spans: tuple[Span, ...]
    """The whole, `generation`, first; its parts follow one another without a gap."""
    instance: Instance | None
    """What ran it; None where it did not come to that."""
    prefill: PrefillAttempt | None = None
    """Of another instance that was asked for it."""


async def recent(reader: LogReader, limit: int, model_id: str | None = None) -> list[GenerationRow]:
    """The generations that ended last, the newest first, of one model or of all."""
    columns = t.generations.c
    query = select(t.generations).where(columns.ended_at.is_not(None)).order_by(columns.ended_at.desc()).limit(limit)
    if model_id is not None:
        query = query.where(columns.model_id == model_id)
    async with reader.connect() as connection:
        return [GenerationRow._make(row) for row in await connection.execute(query)]


async def trace(reader: LogReader, task_id: str) -> Trace:
    """The trace of a generation, over or not. Raises Rejected where the log has none with this id."""
    query = select(t.generations).where(t.generations.c.task_id == task_id)
    async with reader.connect() as connection:
        found = (await connection.execute(query)).one_or_none()
    if found is None:
        raise Rejected(f"the log has no generation '{task_id}'", code="generation_not_found")
    row = GenerationRow._make(found)
    end = await _end(reader, row)
    return Trace(row, tuple(spans(row, end)), await _instance(reader, row), end.prefill if end else None)


def spans(row: GenerationRow, end: GenerationFinished | None = None) -> list[Span]:
    """The spans of a generation. Prefill and decode are measured by rank 0, and end with the event of the end.

    `dispatch` is what lies between the master's decision and the first prefill step: the way to the runner, the chat
    template, and waiting for the engine. `prefill_elsewhere`, where another instance was asked for the prompt, is the
    part of it until that one's state was there.
    """
    whole = Span("generation", None, row.queued_at, _between(row.queued_at, row.ended_at))
    left_queue = row.ended_at if row.dispatched_at is None else row.dispatched_at
    found = [whole, Span("queue", whole.name, row.queued_at, _between(row.queued_at, left_queue))]
    if row.dispatched_at is None:
        return found
    if row.ended_at is None:
        return [*found, Span("dispatch", whole.name, row.dispatched_at, None)]
    decode_at = max(row.dispatched_at, row.ended_at - (row.decode_s or 0.0))
    prefill_at = max(row.dispatched_at, decode_at - (row.prefill_s or 0.0))
    borders = (row.dispatched_at, prefill_at, decode_at, row.ended_at)
    parts = zip(("dispatch", "prefill", "decode"), borders, borders[1:], strict=False)
    elsewhere = [] if end is None else _elsewhere(end, row.dispatched_at, prefill_at)
    return [*found, *(Span(name, whole.name, start, after - start) for name, start, after in parts), *elsewhere]


def _elsewhere(end: GenerationFinished, dispatched_at: float, prefill_at: float) -> list[Span]:
    """Counted back from the first prefill step, up to which the runner measured from taking the task."""
    if end.prefill is None:
        return []
    taken_at = prefill_at - end.timings.wait
    start = max(dispatched_at, taken_at + end.prefill.asked_after)
    return [Span("prefill_elsewhere", "dispatch", start, min(end.prefill.seconds, prefill_at - start))]


async def _end(reader: LogReader, row: GenerationRow) -> GenerationFinished | None:
    """The event of its end; None while it runs, or where that was compacted."""
    if row.ended_at is None:
        return None
    wanted = Filter(frozenset([Entity("generation", row.task_id)]), frozenset(["GenerationFinished"]))
    found = await last_matching(reader, wanted, 1, 0, await reader.position_at(row.ended_at))
    event = found[0].entry.event if found else None
    return event if isinstance(event, GenerationFinished) else None


async def _instance(reader: LogReader, row: GenerationRow) -> Instance | None:
    """The instance that it was given to, by the events of that moment."""
    if row.dispatched_at is None:
        return None
    entity = frozenset([Entity("generation", row.task_id)])
    upto = await reader.position_at(row.dispatched_at)
    wanted = Filter(entity, frozenset(["GenerationDispatched"]))
    dispatched = await last_matching(reader, wanted, 1, 0, upto)
    event = dispatched[0].entry.event if dispatched else None
    if not isinstance(event, GenerationDispatched):
        return None
    wanted = Filter(frozenset([Entity("instance", event.instance_id)]), frozenset(["InstancePlaced"]))
    placed = await first_matching(reader, wanted, 1, 0, upto)
    placement = placed[0].entry.event if placed else None
    return placement.instance if isinstance(placement, InstancePlaced) else None


def _between(start: float, end: float | None) -> float | None:
    return None if end is None else max(0.0, end - start)
