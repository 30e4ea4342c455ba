"""The tables that follow from the events, compared with the events."""

from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from exo.domain.ids import TaskId
from exo.domain.messages.events import Recorded
from exo.log import tables as t
from exo.log.projection import GenerationRow, project
from exo.log.reading import LogReader

_MOST = 100
"""Rows of the inbox that are named; where there are more, the first say enough."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the position that it is about."""

    position: int
    text: str

    def __str__(self) -> str:
        return f"position {self.position}: {self.text}"


@dataclass(slots=True)
class Expected:
    """The rows of `generations` that the events so far lead to; those that are over only as hashes."""

    live: dict[TaskId, GenerationRow] = field(default_factory=dict[TaskId, GenerationRow])
    hashes: dict[TaskId, tuple[int, int]] = field(default_factory=dict[TaskId, tuple[int, int]])
    """Of each row, with the position of the event that it was last changed by."""

    def add(self, recorded: Recorded) -> None:
        """The next event."""
        for task_id, row in project(self.live, [recorded]).items():
            self.hashes[task_id] = (hash(row), recorded.position)
            if row.ended_at is None:
                self.live[task_id] = row
            else:
                del self.live[task_id]


async def differences(store: LogReader, position: int, expected: Expected | None) -> list[Problem] | None:
    """Where the inbox and `generations` disagree with the events; None where the log ends at another `position` by now.

    `expected`: None leaves `generations` out.
    """
    async with store.connect() as connection:
        # One short transaction, so that all three tables are as of one moment.
        await connection.exec_driver_sql("BEGIN")
        newest = await connection.scalar(select(func.max(t.events.c.position)))
        if (newest or 0) != position:
            return None
        problems = await _inbox(connection)
        if expected is not None:
            problems += await _generations(connection, position, expected)
        return problems


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


async def _generations(connection: AsyncConnection, end: int, expected: Expected) -> list[Problem]:
    left = dict(expected.hashes)
    problems: list[Problem] = []
    async for stored in await connection.stream(select(t.generations)):
        row = GenerationRow._make(stored)
        found, position = left.pop(row.task_id, (None, end))
        if found is None:
            problems.append(Problem(position, f"the table of generations has {row.task_id}, and no event has"))
        elif found != hash(row):
            problems.append(Problem(position, f"the table of generations differs for {row.task_id}"))
    return problems + [
        Problem(position, f"the table of generations lacks {task_id}") for task_id, (_, position) in left.items()
    ]
