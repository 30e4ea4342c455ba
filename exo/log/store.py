"""The log of one master: appended to by one process, read by any."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import aiosqlite
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from exo.domain.fold import OutOfOrder
from exo.domain.ids import TaskId
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.errors import Fatal
from exo.log import codec, connections, migrate, repair, snapshots, statements
from exo.log import tables as t
from exo.log.codec import StoredEvent
from exo.log.connections import Malformed, transaction
from exo.log.damage import located
from exo.log.projection import GenerationRow, project
from exo.log.reading import LogReader

_old_snapshots = delete(t.snapshots).where(
    t.snapshots.c.position.not_in(
        select(t.snapshots.c.position).order_by(t.snapshots.c.position.desc()).limit(snapshots.SNAPSHOTS_KEPT)
    )
)


class LogStore(LogReader):
    """A LogReader that also appends, unless it was opened read-only. One process may append at a time."""

    def __init__(
        self, path: Path, engine: AsyncEngine | None = None, connection: AsyncConnection | None = None
    ) -> None:
        super().__init__(path)
        self._engine = engine
        self._connection = connection
        self._one_at_a_time = asyncio.Lock()
        self._live: dict[TaskId, GenerationRow] = {}
        """The rows of the generations that are not over, so that an append reads nothing."""

    @classmethod
    async def open(cls, path: Path, *, read_only: bool = False, durable: bool = True) -> "LogStore":
        """The log at `path`. For writing it is made, or brought up to date, where that is needed.

        `durable`: an append that returned outlives a power cut, at the price of one flush of the disk; else it
        outlives the process only. Raises Fatal where the file is missing (read-only), of a newer version, or no log.
        """
        if read_only:
            await asyncio.to_thread(migrate.check, path)
            store = cls(path)
        else:
            await asyncio.to_thread(migrate.migrate, path)
            engine = connections.writer(path, durable=durable)
            with connections.explained(path):
                store = cls(path, engine, await engine.connect())
        try:
            await store.refresh()
            if not read_only:
                await store._read_live()
        except Malformed as error:
            found = await located(store, error)
            await store.close()
            raise found from error
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Closes the file. Nothing else may be called afterwards."""
        # The writer last: only then does SQLite bring all into one file, of which a copy is whole.
        await super().close()
        if self._connection is not None:
            await self._connection.close()
        if self._engine is not None:
            await self._engine.dispose()

    async def append(self, batch: Sequence[Recorded]) -> None:
        """Adds events in one transaction: all of them or, where this raises, none.

        Raises OutOfOrder unless their positions follow on `self.position`, and Fatal, saying what to do, where the
        disk or another process is in the way. Cancelled, it ends what it began before it gives way.
        """
        if batch:
            await _whole(self._append(self._encode, batch))

    async def append_rows(self, rows: Sequence[StoredEvent]) -> list[Recorded]:
        """Adds rows of another master's log as they are, in one transaction as `append`; the events that they hold.

        Raises Fatal, naming the position, where a row does not follow on the one before it.
        """
        batch = codec.decode(rows)
        if rows:
            await _whole(self._append(lambda _batch: self._checked(rows), batch))
        return batch

    async def drop_tail(self, position: int) -> None:
        """Drops the events from `position` on, and what follows from them; for a tail that EVENTS holds undamaged.

        Appending goes on at `position`. Raises Fatal as `append` does, and Undecodable where what is left is damaged.
        """
        async with self._one_at_a_time:
            left = await repair.generations_before(self, position)
            with connections.explained(self.path):
                async with transaction(self._writing()) as connection:
                    await repair.drop_from(connection, position, left)
            await self.refresh()
            await self._read_live()

    async def write_snapshot(self, state: State) -> None:
        """Keeps `state`, and drops all but the newest few. Raises Fatal as `append` does."""
        row = await asyncio.to_thread(snapshots.encode, state)
        async with self._one_at_a_time:
            with connections.explained(self.path):
                connection = self._writing()
                async with connection.begin():
                    await connection.exec_driver_sql(statements.PUT_SNAPSHOT, row)
                    await connection.execute(_old_snapshots)

    async def _append(
        self, rows_of: Callable[[Sequence[Recorded]], Sequence[StoredEvent]], batch: Sequence[Recorded]
    ) -> None:
        async with self._one_at_a_time:
            rows = rows_of(batch)
            changed = project(self._live, batch)
            with connections.explained(self.path):
                async with transaction(self._writing()) as connection:
                    await _insert(connection, rows, list(changed.values()))
            self.position, self.chain = rows[-1].position, rows[-1].chain
            self._live.update(changed)
            for task_id in [task_id for task_id, row in changed.items() if row.ended_at is not None]:
                del self._live[task_id]

    def _encode(self, batch: Sequence[Recorded]) -> list[StoredEvent]:
        rows: list[StoredEvent] = []
        position, chain = self.position, self.chain
        for recorded in batch:
            if recorded.position != position + 1:
                raise OutOfOrder(position + 1, recorded.position)
            rows.append(codec.encode(recorded, chain))
            position, chain = recorded.position, rows[-1].chain
        return rows

    def _checked(self, rows: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        position, chain = self.position, self.chain
        for row in rows:
            if row.position != position + 1 or not codec.follows(row, chain):
                raise Fatal(f"the event at position {position + 1} of another master's log does not follow on this one")
            position, chain = row.position, row.chain
        return rows

    async def _read_live(self) -> None:
        unended = select(t.generations).where(t.generations.c.ended_at.is_(None))
        async with self.connect() as connection:
            rows = [GenerationRow._make(row) for row in await connection.execute(unended)]
        self._live = {row.task_id: row for row in rows}

    def _writing(self) -> AsyncConnection:
        if self._connection is None:
            raise Fatal(f"the event log {self.path} was opened for reading only")
        return self._connection


async def _whole(work: Coroutine[object, object, None]) -> None:
    """Does it; cancelled, ends it before giving way."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _insert(
    connection: aiosqlite.Connection, rows: Sequence[StoredEvent], generations: list[GenerationRow]
) -> None:
    await connection.executemany(statements.INSERT_EVENTS, rows)
    causes = statements.first_causes(rows)
    if causes:
        await connection.executemany(statements.INSERT_INBOX, causes)
    if generations:
        await connection.executemany(statements.PUT_GENERATION, generations)
