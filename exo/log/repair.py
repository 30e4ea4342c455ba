"""Taking the end off a log, so that it can be written again from the stream `EVENTS`."""

from collections.abc import Collection
from typing import NamedTuple

import aiosqlite
from sqlalchemy import text

from exo.domain.ids import TaskId
from exo.log.projection import GenerationRow, project
from exo.log.reading import LogReader

_AFFECTED = text(
    "SELECT task_id, queued_at FROM generations "
    "WHERE queued_at >= :since OR dispatched_at >= :since OR ended_at >= :since"
)
_BEFORE = text("SELECT max(position) FROM events WHERE recorded_at < :time AND position < :position")
_DROPS = (
    "DELETE FROM events WHERE position >= ?",
    "DELETE FROM inbox WHERE position >= ?",
    "DELETE FROM snapshots WHERE position >= ?",
)
_PUT = f"INSERT INTO generations VALUES ({', '.join('?' * len(GenerationRow._fields))})"


class Generations(NamedTuple):
    """The rows of `generations` that the end of a log may have changed."""

    affected: Collection[TaskId]
    rows: Collection[GenerationRow]
    """As they are without that end. Those that are not here are gone with it."""


async def generations_before(store: LogReader, position: int) -> Generations:
    """What `generations` is without the events from `position` on. Raises Undecodable where an earlier one is damaged.

    The rows of that end are not looked at: they may be garbage. What they changed shows by its time, since time never
    runs backwards in a log.
    """
    kept = await store.rows(position - 2, 1) if position > 1 else []
    since = kept[0].recorded_at if kept else 0.0
    async with store.connect() as connection:
        found = (await connection.execute(_AFFECTED, {"since": since})).all()
        earliest = min((row.queued_at for row in found), default=since)
        begin = await connection.scalar(_BEFORE, {"time": earliest, "position": position})
    rows: dict[TaskId, GenerationRow] = {}
    async for recorded in store.stream(begin or 0, position - 1):
        rows |= project(rows, [recorded])
    affected = {TaskId(row.task_id) for row in found}
    return Generations(affected, [row for task_id, row in rows.items() if task_id in affected])


async def drop_from(connection: aiosqlite.Connection, position: int, left: Generations) -> None:
    """Drops every row of the events from `position` on, in the transaction that is open."""
    for statement in _DROPS:
        await connection.execute(statement, (position,))
    await connection.executemany("DELETE FROM generations WHERE task_id = ?", [(one,) for one in left.affected])
    await connection.executemany(_PUT, left.rows)
