"""Finding the events about something. Each look covers a bounded part of the file: no read holds up a writer."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select

from exo.domain.messages.events import Recorded
from exo.log import codec
from exo.log import tables as t
from exo.log.codec import StoredEvent
from exo.log.explain.entities import Entity, Search, matches
from exo.log.reading import PAGE, LogReader

WINDOW = 20_000
"""Positions that one statement looks at: a few hundredths of a second."""

OnProgress = Callable[[int, int], None]
"""Is told how many positions have been looked at, of how many."""


def no_progress(_done: int, _all: int) -> None:
    """For whoever does not show it."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events are wanted."""

    entities: frozenset[Entity] = frozenset()
    """Events that name one of these; empty: whatever they name."""
    types: frozenset[str] = frozenset()
    """Events of one of these types; empty: of any."""

    def takes(self, recorded: Recorded) -> bool:
        """Whether an event is wanted."""
        if self.types and recorded.entry.event.type not in self.types:
            return False
        return not self.entities or any(matches(recorded, entity) for entity in self.entities)

    def condition(self) -> list[ColumnElement[bool]]:
        """As SQL, for a first choice: `takes` is asked about what it lets through."""
        conditions: list[ColumnElement[bool]] = []
        if self.types:
            conditions.append(t.events.c.type.in_(sorted(self.types)))
        if self.entities:
            conditions.append(or_(*(_names(entity) for entity in sorted(self.entities))))
        return conditions


async def matching(
    reader: LogReader, wanted: Filter, after: int, upto: int, on_progress: OnProgress = no_progress
) -> AsyncGenerator[Recorded]:
    """The wanted events with `after` < position <= `upto`, in order. Raises Undecodable, a Fatal."""
    begin = after
    while after < upto:
        end = min(after + WINDOW, upto)
        rows = await _rows(reader, wanted, after, end, PAGE)
        for recorded in codec.decode(rows):
            if wanted.takes(recorded):
                yield recorded
        after = rows[-1].position if len(rows) == PAGE else end
        on_progress(after - begin, upto - begin)


async def first_matching(reader: LogReader, wanted: Filter, count: int, after: int, upto: int) -> list[Recorded]:
    """The first `count` wanted events with `after` < position <= `upto`. Raises Undecodable, a Fatal."""
    found: list[Recorded] = []
    async with aclosing(matching(reader, wanted, after, upto)) as events:
        async for recorded in events:
            found.append(recorded)
            if len(found) == count:
                break
    return found


async def last_matching(reader: LogReader, wanted: Filter, count: int, after: int, upto: int) -> list[Recorded]:
    """The last `count` wanted events with `after` < position <= `upto`, oldest first. Raises Undecodable, a Fatal."""
    found: list[Recorded] = []
    end = upto
    while end > after and len(found) < count:
        begin = max(end - WINDOW, after)
        limit = min(PAGE, max(count - len(found), 50))
        rows = await _rows(reader, wanted, begin, end, limit, newest_first=True)
        found += [recorded for recorded in codec.decode(rows) if wanted.takes(recorded)]
        end = rows[-1].position - 1 if len(rows) == limit else begin
    return found[:count][::-1]


async def find_entity(reader: LogReader, text: str, upto: int, on_progress: OnProgress = no_progress) -> Entity:
    """The entity that a text stands for, by the events up to `upto`: see `Search`. Raises Rejected."""
    search = Search(text)
    if search.text:
        await _look(reader, search, upto, fold_case=False, on_progress=on_progress)
        if not search.has_found:
            await _look(reader, search, upto, fold_case=True, on_progress=on_progress)
    return search.result()


async def _look(reader: LogReader, search: Search, upto: int, *, fold_case: bool, on_progress: OnProgress) -> None:
    """Shows `search` the events that it may want."""
    written = re.compile(f'"?{re.escape(_in_json(search.text))}[^"]*', re.IGNORECASE if fold_case else re.NOFLAG)
    known: set[str] = set()
    after = 0
    while after < upto and not search.is_certain:
        end = min(after + WINDOW, upto)
        rows = await _rows_with(reader, search.text, after, end, fold_case=fold_case)
        for row in rows:
            # Decoding is the slow part: a row that names nothing new is left alone. But two nodes may have one name.
            senders = {one for one in (row.source, row.cause_id or "") if one.startswith(search.text)}
            found = {*written.findall(row.body), *senders}
            if row.type == "NodeJoined" or not found <= known:
                known |= found
                search.add(codec.decode([row])[0])
        after = rows[-1].position if len(rows) == PAGE else end
        on_progress(after, upto)


async def _rows(
    reader: LogReader, wanted: Filter, after: int, upto: int, limit: int, *, newest_first: bool = False
) -> list[StoredEvent]:
    position = t.events.c.position
    inside = and_(position > after, position <= upto, *wanted.condition())
    query = select(t.events).where(inside).order_by(position.desc() if newest_first else position).limit(limit)
    async with reader.connect() as connection:
        return [StoredEvent._make(row) for row in await connection.execute(query)]


async def _rows_with(reader: LogReader, text: str, after: int, upto: int, *, fold_case: bool) -> list[StoredEvent]:
    """Rows that have a text in their body, or a sender or cause that begins with it."""
    events = t.events.c
    inside = and_(events.position > after, events.position <= upto)
    written = _in_json(text)
    body = func.instr(func.lower(events.body), written.lower()) if fold_case else func.instr(events.body, written)
    has = or_(body > 0, func.instr(events.source, text) == 1, func.instr(events.cause_id, text) == 1)
    query = select(t.events).where(inside, has).order_by(events.position).limit(PAGE)
    async with reader.connect() as connection:
        return [StoredEvent._make(row) for row in await connection.execute(query)]


def _names(entity: Entity) -> ColumnElement[bool]:
    events = t.events.c
    if entity.kind == "command":
        return events.cause_id == entity.id
    return or_(func.instr(events.body, _in_json(entity.id)) > 0, events.source == entity.id)


def _in_json(text: str) -> str:
    """A text as it stands inside a body."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


async def events_at(reader: LogReader, positions: Collection[int]) -> list[Recorded]:
    """The events at these positions, in order; without those that are not there."""
    query = select(t.events).where(t.events.c.position.in_(sorted(positions))).order_by(t.events.c.position)
    async with reader.connect() as connection:
        return codec.decode([StoredEvent._make(row) for row in await connection.execute(query)])
