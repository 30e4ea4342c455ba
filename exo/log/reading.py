"""Reading the log: pages by position, each in a short transaction of its own."""

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from exo.domain.ids import MessageId
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.log import codec, connections, snapshots
from exo.log import tables as t
from exo.log.codec import StoredBody, StoredEvent
from exo.log.connections import fetched
from exo.log.snapshots import StoredSnapshot

PAGE = 1000
"""Rows read at a time: large enough to be fast, small enough to hold nobody up."""

_ROWS = "SELECT * FROM events WHERE position > ? ORDER BY position LIMIT ?"
_BODIES = (
    "SELECT position, recorded_at, type, version, body FROM events WHERE position > ? AND position <= ? "
    "ORDER BY position LIMIT ?"
)


class LogReader:
    """A log's file, read while a master may be writing to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """Of the last event; 0 in an empty log. As of `refresh`, or of the last append by the same store."""
        self.chain = codec.GENESIS
        """Of the last event's row."""
        self._reader = connections.reader(path)

    async def close(self) -> None:
        """Closes the file. Nothing else may be called afterwards."""
        await self._reader.dispose()

    async def refresh(self) -> int:
        """Looks up what the last event is now, and returns its position."""
        newest = select(t.events.c.position, t.events.c.chain).order_by(t.events.c.position.desc()).limit(1)
        async with self.connect() as connection:
            row = (await connection.execute(newest)).one_or_none()
        self.position, self.chain = (row.position, row.chain) if row else (0, codec.GENESIS)
        return self.position

    async def rows(self, after: int, limit: int = PAGE) -> list[StoredEvent]:
        """At most `limit` rows with a position above `after`, in order, as they are stored."""
        async with self.connect() as connection:
            return [StoredEvent._make(row) for row in await fetched(connection, _ROWS, (after, limit))]

    async def bodies(self, after: int, upto: int, limit: int = PAGE) -> list[StoredBody]:
        """At most `limit` rows with `after` < position <= `upto`, in order: of each what State depends on."""
        async with self.connect() as connection:
            return await fetched(connection, _BODIES, (after, upto, limit))

    async def positions(self, after: int, limit: int = PAGE) -> list[int]:
        """The positions of `rows`, without what they hold."""
        events = t.events.c
        query = select(events.position).where(events.position > after).order_by(events.position).limit(limit)
        async with self.connect() as connection:
            return list((await connection.scalars(query)).all())

    async def read(self, after: int, limit: int = PAGE) -> list[Recorded]:
        """At most `limit` events with a position above `after`, in order. Raises Undecodable, a Fatal."""
        return codec.decode(await self.rows(after, limit))

    async def stream(self, after: int = 0, upto: int | None = None) -> AsyncIterator[Recorded]:
        """Every event with `after` < position <= `upto` (None: the end), read by the page."""
        while upto is None or after < upto:
            limit = PAGE if upto is None else min(PAGE, upto - after)
            page = await self.read(after, limit)
            for recorded in page:
                if upto is None or recorded.position <= upto:
                    yield recorded
            if len(page) < limit:
                return
            after = page[-1].position

    async def last(self, count: int, event_type: str | None = None) -> list[Recorded]:
        """The last `count` events, of one type or of all, oldest first. Raises Undecodable, a Fatal."""
        query = select(t.events).order_by(t.events.c.position.desc()).limit(count)
        if event_type is not None:
            query = query.where(t.events.c.type == event_type)
        async with self.connect() as connection:
            rows = [StoredEvent._make(row) for row in await connection.execute(query)]
        return codec.decode(rows[::-1])

    async def position_at(self, time: float) -> int:
        """The position of the last event recorded at or before `time`, seconds since the epoch; 0 if none was."""
        query = select(func.max(t.events.c.position)).where(t.events.c.recorded_at <= time)
        async with self.connect() as connection:
            return (await connection.execute(query)).scalar() or 0

    async def seen(self, ids: Collection[MessageId]) -> dict[MessageId, int]:
        """Those of these messages that led to events, each with the position of its first."""
        query = select(t.inbox.c.message_id, t.inbox.c.position).where(t.inbox.c.message_id.in_(ids))
        async with self.connect() as connection:
            return {row.message_id: row.position for row in await connection.execute(query)}

    async def caused_by(self, message_id: MessageId) -> list[Recorded]:
        """The events that a message led to, in order; none where it led to nothing or never came."""
        query = select(t.events).where(t.events.c.cause_id == message_id).order_by(t.events.c.position)
        async with self.connect() as connection:
            rows = [StoredEvent._make(row) for row in await connection.execute(query)]
        return codec.decode(rows)

    async def latest_snapshot(self, upto: int | None = None) -> State | None:
        """The newest usable snapshot at or before `upto` (None: the end of the log), or None.

        Not usable: made under another schema of State, damaged, or newer than the log itself.
        """
        last = self.position if upto is None else min(upto, self.position)
        query = select(t.snapshots.c.position).where(t.snapshots.c.position <= last)
        async with self.connect() as connection:
            positions = (await connection.scalars(query.order_by(t.snapshots.c.position.desc()))).all()
        for position in positions:
            row = await self._snapshot(position)
            state = snapshots.decode(row) if row else None
            if state is not None:
                return state
        return None

    async def _snapshot(self, position: int) -> StoredSnapshot | None:
        """The snapshot at a position; None where it has gone meanwhile, or is text that is no Unicode."""
        try:
            async with self.connect() as connection:
                row = (
                    await connection.execute(select(t.snapshots).where(t.snapshots.c.position == position))
                ).one_or_none()
                return StoredSnapshot._make(row) if row else None
        except connections.NoText:
            return None

    async def snapshots(self) -> list[StoredSnapshot]:
        """The snapshots as they are stored, oldest first."""
        async with self.connect() as connection:
            found = await connection.execute(select(t.snapshots).order_by(t.snapshots.c.position))
            return [StoredSnapshot._make(row) for row in found]

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[AsyncConnection, None]:
        """A connection that cannot write. SQLite's errors inside become Fatal."""
        with connections.explained(self.path):
            async with self._reader.connect() as connection:
                try:
                    yield connection
                except (DBAPIError, sqlite3.Error):
                    # What it was reading is still open in it, and would show the file as it was for ever.
                    await connection.invalidate()
                    raise
