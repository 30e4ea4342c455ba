"""The tables that follow from the events, compared with the events."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from exo.domain.ids import TaskId
from exo.domain.messages.events import Compacted, Recorded
from exo.log import tables as t
from exo.log.connections import explained
from exo.log.projection import GenerationRow, project
from exo.log.reading import LogReader

_MOST = 100
"""Rows of a table that are named for one reason; where there are more, the first say enough."""

_COLUMNS = GenerationRow._fields
_DROP = "DROP TABLE IF EXISTS temp.expected"
_CREATE = "CREATE TEMP TABLE expected AS SELECT *, 0 AS position FROM generations LIMIT 0"
_INDEX = "CREATE UNIQUE INDEX temp.expected_by_task ON expected (task_id)"
_PUT = f"INSERT OR REPLACE INTO temp.expected VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"
_DIFFERING = f"""
    SELECT e.position, e.task_id FROM temp.expected AS e JOIN main.generations AS g ON g.task_id = e.task_id
    WHERE NOT ({" AND ".join(f"e.{column} IS g.{column}" for column in _COLUMNS)}) LIMIT {_MOST}"""
_LACKING = f"""
    SELECT position, task_id FROM temp.expected AS e
    WHERE NOT EXISTS (SELECT 1 FROM main.generations AS g WHERE g.task_id = e.task_id) LIMIT {_MOST}"""
_EXTRA = f"""
    SELECT task_id FROM main.generations AS g WHERE g.queued_at > :compacted_at
    AND NOT EXISTS (SELECT 1 FROM temp.expected AS e WHERE e.task_id = g.task_id) LIMIT {_MOST}"""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the position that it is about."""

    position: int
    text: str

    def __str__(self) -> str:
        return f"position {self.position}: {self.text}"


@dataclass(slots=True)
class Expected:
    """The rows of `generations` that the events so far lead to.

    Those of generations that are over lie in a temporary table, which SQLite writes to disk where it grows: a log of
    any length is checked in the same memory.
    """

    connection: AsyncConnection
    """With the temporary table; no transaction is open on it in between."""
    path: Path
    """Of the log."""
    live: dict[TaskId, GenerationRow] = field(default_factory=dict[TaskId, GenerationRow])
    changed_at: dict[TaskId, int] = field(default_factory=dict[TaskId, int])
    """The position of the event that each of `live` was last changed by."""
    compacted_at: float = -1.0
    """Time of the last event whose content was dropped: rows that were queued by then may have no event any more."""

    async def add(self, page: Sequence[Recorded]) -> None:
        """The next events."""
        over: list[tuple[object, ...]] = []
        for recorded in page:
            if isinstance(recorded.entry.event, Compacted):
                self.compacted_at = recorded.entry.recorded_at
            for task_id, row in project(self.live, [recorded]).items():
                self.live[task_id], self.changed_at[task_id] = row, recorded.position
                if row.ended_at is not None:
                    over.append((*self.live.pop(task_id), self.changed_at.pop(task_id)))
        if over:
            await self.connection.exec_driver_sql("BEGIN")
            await self.connection.exec_driver_sql(_PUT, over)
            await self.connection.exec_driver_sql("COMMIT")

    async def differences(self, position: int, *, generations: bool) -> list[Problem] | None:
        """Where the tables disagree with the events; None where the log ends at another `position` by now.

        `generations`: whether to compare that table too; else the inbox only. Raises Malformed, a Fatal.
        """
        with explained(self.path):
            # One short transaction, so that all three tables are as of one moment.
            await self.connection.exec_driver_sql("BEGIN")
            try:
                newest = await self.connection.scalar(select(func.max(t.events.c.position)))
                if (newest or 0) != position:
                    return None
                problems = await _inbox(self.connection)
                return problems + await self._generations(position) if generations else problems
            finally:
                await self.connection.exec_driver_sql("ROLLBACK")

    async def _generations(self, end: int) -> list[Problem]:
        live = [(*row, self.changed_at[task_id]) for task_id, row in self.live.items()]
        if live:
            await self.connection.exec_driver_sql(_PUT, live)
        differing = await self.connection.execute(text(_DIFFERING))
        problems = [Problem(row.position, f"the table of generations differs for {row.task_id}") for row in differing]
        lacking = await self.connection.execute(text(_LACKING))
        problems += [Problem(row.position, f"the table of generations lacks {row.task_id}") for row in lacking]
        extra = await self.connection.execute(text(_EXTRA), {"compacted_at": self.compacted_at})
        return problems + [
            Problem(end, f"the table of generations has {row.task_id}, and no event has") for row in extra
        ]


@asynccontextmanager
async def expecting(store: LogReader) -> AsyncGenerator[Expected, None]:
    """For one pass over the log. The temporary table is gone afterwards."""
    async with store.connect() as connection:
        for statement in (_DROP, _CREATE, _INDEX):
            await connection.exec_driver_sql(statement)
        yield Expected(connection, store.path)
        await connection.exec_driver_sql(_DROP)


async def _inbox(connection: AsyncConnection) -> list[Problem]:
    events, inbox = t.events.c, t.inbox.c
    caused = (
        select(events.cause_id, func.min(events.position)).where(events.cause_id.is_not(None)).group_by(events.cause_id)
    )
    noted = select(inbox.message_id, inbox.position)
    lacking = await connection.execute(caused.except_(noted).limit(_MOST))
    problems = [Problem(position, f"the inbox does not have its cause {cause} here") for cause, position in lacking]
    extra = await connection.execute(noted.except_(caused).limit(_MOST))
    return problems + [
        Problem(position, f"the inbox has the message {message} here, and no event has") for message, position in extra
    ]
