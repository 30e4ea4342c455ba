"""Drops the content of events that can never matter again. Place, time and digest stay, and with them the chain."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from exo.errors import Fatal
from exo.log import codec, connections
from exo.log import tables as t
from exo.log.codec import StoredEvent
from exo.log.moving.archive import OnProgress
from exo.log.moving.compactable import Found, Walk
from exo.log.reading import PAGE, LogReader

NEWEST_KEPT = 10_000
"""Events at the end of a log that are never compacted, however old they are."""

_DIGEST_BYTES = 64
_drop = "UPDATE events SET type = ?, version = ?, cause_id = ?, source = ?, body = ? WHERE position = ?"
_forget_message = """
DELETE FROM inbox WHERE message_id = ? AND NOT EXISTS (SELECT 1 FROM events WHERE cause_id = inbox.message_id)
"""
_place_message = """
UPDATE inbox SET position = (SELECT min(position) FROM events WHERE cause_id = inbox.message_id) WHERE message_id = ?
"""


@dataclass(slots=True)
class Compaction:
    """What was dropped, or would be."""

    upto: int
    """The last position that was looked at."""
    events: int = 0
    generations: int = 0
    rejections: int = 0
    content_bytes: int = 0
    """Of the dropped content, less the digests in its place."""
    freed_bytes: int = 0
    """By which the files are smaller; 0 where nothing was done."""

    def add(self, found: Found) -> None:
        """Counts what is dropped together."""
        self.events += len(found.contents)
        self.generations += found.generation
        self.rejections += not found.generation
        self.content_bytes += sum(content.size - _DIGEST_BYTES for content in found.contents)


async def compact(
    store: LogReader,
    before: float,
    *,
    dry_run: bool = False,
    newest_kept: int = NEWEST_KEPT,
    on_progress: OnProgress = lambda _position, _end: None,
) -> Compaction:
    """Drops what was over `before`, seconds since the epoch, and gives the room back; `dry_run`: only says so.

    Left alone are the newest events and whatever comes after the oldest snapshot. Cut short, it has dropped less, and
    nothing by halves. No master may run meanwhile. Raises Fatal, naming the position, where the log is damaged.
    """
    compaction = Compaction(await _horizon(store, before, newest_kept))
    size = _size(store.path)
    async with _writer(store.path) as engine:
        due: list[int] = []
        async for found in _found(store, compaction.upto, on_progress):
            compaction.add(found)
            due += [content.position for content in found.contents]
            if len(due) >= PAGE and not dry_run:
                await _drop_content(engine, store.path, due)
                due = []
        if due and not dry_run:
            await _drop_content(engine, store.path, due)
    if not dry_run:
        await asyncio.to_thread(_shrink, store.path)
        compaction.freed_bytes = size - _size(store.path)
    return compaction


async def _horizon(store: LogReader, before: float, newest_kept: int) -> int:
    """The last position that may be compacted; 0: none."""
    oldest_snapshot = min([row.position for row in await store.snapshots()], default=store.position + 1)
    return max(0, min(await store.position_at(before), store.position - newest_kept, oldest_snapshot - 1))


async def _found(store: LogReader, upto: int, on_progress: OnProgress) -> AsyncIterator[Found]:
    walk, position, chain = Walk(), 0, codec.GENESIS
    while position < upto:
        rows = await store.rows(position, min(PAGE, upto - position))
        if not rows:
            raise Fatal(f"the event at position {position + 1} is missing: run `exo log verify`")
        for row, recorded in zip(rows, codec.decode(rows), strict=True):
            # What is damaged must not be made good by dropping it.
            if row.position != position + 1 or not codec.follows(row, chain):
                raise Fatal(f"the chain is broken at position {position + 1}: run `exo log verify`")
            position, chain = row.position, row.chain
            if found := walk.add(recorded, _content_bytes(row)):
                yield found
        on_progress(position, upto)


def _content_bytes(row: StoredEvent) -> int:
    return len(row.body.encode()) + len(row.source.encode()) + len((row.cause_id or "").encode())


async def _drop_content(engine: AsyncEngine, path: Path, positions: list[int]) -> None:
    """In one transaction, so that a generation is never dropped by halves."""
    with connections.explained(path):
        async with engine.begin() as connection:
            query = select(t.events).where(t.events.c.position.in_(positions))
            rows = [StoredEvent._make(row) for row in await connection.execute(query)]
            left = [codec.compacted(row) for row in rows]
            columns = [(row.type, row.version, row.cause_id, row.source, row.body, row.position) for row in left]
            await connection.exec_driver_sql(_drop, columns)
            await _correct_inbox(connection, {row.cause_id for row in rows if row.cause_id is not None})


async def _correct_inbox(connection: AsyncConnection, causes: set[str]) -> None:
    """A message stays as long as an event names it, at the first that does."""
    if causes:
        await connection.exec_driver_sql(_forget_message, [(cause,) for cause in sorted(causes)])
        await connection.exec_driver_sql(_place_message, [(cause,) for cause in sorted(causes)])


@asynccontextmanager
async def _writer(path: Path) -> AsyncGenerator[AsyncEngine]:
    engine = connections.writer(path, durable=True)
    try:
        yield engine
    finally:
        await engine.dispose()


def _shrink(path: Path) -> None:
    with connections.explained(path), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _size(path: Path) -> int:
    """Bytes of the log's files."""
    files = (path.with_name(f"{path.name}{ending}") for ending in ("", "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
