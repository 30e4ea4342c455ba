"""Connections to the log's file, and what SQLite's errors mean to whoever runs a node."""

import errno
import sqlite3
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import aiosqlite
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from exo.errors import Fatal, Retryable

BUSY_MS = 5000
"""How long a connection waits for another's lock, in milliseconds."""

BEGIN = "BEGIN IMMEDIATE"
"""A read transaction that turns to writing fails where another has written meanwhile, and does not wait."""

_ADVICE = {
    sqlite3.SQLITE_CORRUPT: "the file is damaged; put a copy, or the log of another master, in its place",
    sqlite3.SQLITE_NOTADB: "this is no SQLite file; move it away, or name another home",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; see that it and its folder exist and belong to you",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written; see who they belong to",
    sqlite3.SQLITE_PERM: "the file cannot be written; see who it belongs to",
    sqlite3.SQLITE_BUSY: "another process writes to it; is a second master running with this home?",
    sqlite3.SQLITE_CONSTRAINT: "another process wrote to it; is a second master running with this home?",
    sqlite3.SQLITE_IOERR: "the disk reports an error; look at the system's log before starting again",
}


def writer(path: Path, *, durable: bool) -> AsyncEngine:
    """For the one connection that writes. `durable`: what is committed outlives a power cut."""
    engine = create_async_engine(URL.create("sqlite+aiosqlite", database=str(path)), poolclass=NullPool)
    _configure(engine.sync_engine, begin=BEGIN, pragmas=_writing(durable))
    return engine


def reader(path: Path) -> AsyncEngine:
    """For connections that cannot write, however many at a time."""
    engine = create_async_engine(_read_only_url("sqlite+aiosqlite", path))
    _configure(engine.sync_engine, begin=None, pragmas=(f"busy_timeout = {BUSY_MS}",))
    return engine


def migrator(path: Path) -> Engine:
    """For the migrations, which run before there is a writer. Synchronous."""
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool)
    _configure(engine, begin=BEGIN, pragmas=_writing(durable=True))
    return engine


def inspector(path: Path) -> Engine:
    """As `reader`, synchronous."""
    engine = create_engine(_read_only_url("sqlite", path), poolclass=NullPool)
    _configure(engine, begin=None, pragmas=(f"busy_timeout = {BUSY_MS}",))
    return engine


@asynccontextmanager
async def transaction(connection: AsyncConnection) -> AsyncGenerator[aiosqlite.Connection, None]:
    """A transaction on the writer's own driver, committed at the end of the block unless that raises.

    Appending an event is in the way of every first token: through SQLAlchemy's execution it takes 1.5 ms, and on the
    driver that SQLAlchemy hands out 0.4 ms.
    """
    raw = await connection.get_raw_connection()
    driver = cast("aiosqlite.Connection", raw.driver_connection)
    await driver.execute(BEGIN)
    try:
        yield driver
        await driver.commit()
    except BaseException:
        await driver.rollback()
        raise


class DiskFull(Retryable):
    """There is no room for more of the log. Nothing was half-written, and it goes on when there is room again."""


class Malformed(Fatal):
    """SQLite finds the file damaged. `cause` is what it says."""

    def __init__(self, path: Path, cause: object) -> None:
        super().__init__(f"the event log {path}: {_cut(path)}{_ADVICE[sqlite3.SQLITE_CORRUPT]} ({cause})")
        self.cause = cause


class NoText(Malformed):
    """A column for text holds bytes that are none."""


async def fetched(connection: AsyncConnection, sql: str, parameters: Sequence[object]) -> list[Any]:
    """The rows of a query as plain tuples, from the driver itself: half the time of SQLAlchemy's rows."""
    raw = await connection.get_raw_connection()
    driver = cast("aiosqlite.Connection", raw.driver_connection)
    return list(await driver.execute_fetchall(sql, parameters))


@contextmanager
def explained(path: Path) -> Generator[None, None, None]:
    """Turns the errors of SQLite and the file system into DiskFull and Fatal, with the file and what to do about it."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the low byte: extended codes refine it
        if code == sqlite3.SQLITE_FULL:
            raise DiskFull(f"the disk that holds the event log {path} is full: free some space") from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise Malformed(path, cause) from error
        if "Could not decode to UTF-8" in str(cause):  # the driver's own finding, which has no code
            raise NoText(path, cause) from error
        advice = _ADVICE.get(code, "SQLite refused")
        raise Fatal(f"the event log {path}: {advice} ({cause})") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"the disk that holds the event log {path} is full: free some space") from error
        raise Fatal(f"the event log {path}: {error.strerror}: {error.filename}") from error


def _cut(path: Path) -> str:
    """That a file is shorter than its header says, where it is. SQLite reads nothing of such a file."""
    with path.open("rb") as file:
        header = file.read(32)  # https://www.sqlite.org/fileformat.html#the_database_header
    page_bytes, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    there, expected = path.stat().st_size, (65536 if page_bytes == 1 else page_bytes) * pages
    return f"the file is cut, {there} of {expected} bytes are there; " if there < expected else ""


def _writing(durable: bool) -> tuple[str, ...]:
    # Waiting for locks comes first: switching to WAL needs one.
    return (
        f"busy_timeout = {BUSY_MS}",
        "journal_mode = WAL",
        f"synchronous = {'FULL' if durable else 'NORMAL'}",
    )


def _read_only_url(driver: str, path: Path) -> URL:
    return URL.create(driver, database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"})


def _configure(engine: Engine, *, begin: str | None, pragmas: tuple[str, ...]) -> None:
    """SQLAlchemy's own way to say BEGIN itself: the driver's would come late, and never be immediate.

    Without `begin` every statement is a transaction by itself, which is what reading needs.
    """

    @event.listens_for(engine, "connect")
    def on_connect(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    if begin is not None:

        @event.listens_for(engine, "begin")
        def on_begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
            connection.exec_driver_sql(begin)
