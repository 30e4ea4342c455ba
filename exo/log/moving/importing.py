"""Makes a log from an exported one. Nothing is there before all of it was found right."""

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import zstandard
from sqlalchemy import Engine

from exo.domain.fold import fold
from exo.domain.ids import TaskId
from exo.domain.messages.events import Recorded
from exo.domain.shape import schema_digest
from exo.domain.state import State
from exo.errors import Rejected
from exo.log import codec, connections, migrate, snapshots, statements
from exo.log import tables as t
from exo.log.codec import StoredEvent, Undecodable
from exo.log.moving import archive
from exo.log.moving.archive import BadArchive, Footer, Header, OnProgress
from exo.log.projection import GenerationRow, project
from exo.log.reading import PAGE
from exo.log.snapshots import state_digest


def import_log(source: BinaryIO, path: Path, on_progress: OnProgress = lambda _position, _end: None) -> Footer:
    """Makes the log at `path` from an exported one and returns its footer: same positions, chain, State and digests.

    It is written beside its place and comes there when all is checked. Raises Rejected where there is a log with
    events already, BadArchive with line and position where the file is not whole, and Fatal where the disk is in the
    way. Blocks; no master may run on that home meanwhile.
    """
    refuse_if_used(path)
    temporary = path.with_name(f"{path.name}.importing")
    with _left_nothing(temporary):
        _forget(temporary)
        migrate.migrate(temporary)
        footer = _fill(temporary, source, on_progress)
        with connections.explained(path):
            _forget(path)
            temporary.replace(path)
            _flush_folder(path.parent)
    return footer


def refuse_if_used(path: Path) -> None:
    """Raises Rejected where the log at `path` has events."""
    if not path.exists():
        return
    migrate.check(path)
    with connections.explained(path):
        engine = connections.inspector(path)
        try:
            with engine.connect() as connection:
                used = connection.execute(t.events.select().limit(1)).first() is not None
        finally:
            engine.dispose()
    if used:
        raise Rejected(
            f"the log {path} has events already, and two histories cannot become one: import into a home of its own "
            "(--home), or move that file away first, with the folder `nats` beside its folder"
        )


def _fill(temporary: Path, source: BinaryIO, on_progress: OnProgress) -> Footer:
    reader = _Reader(source)
    header = reader.header()
    state = State()
    live: dict[TaskId, GenerationRow] = {}
    with _connected(temporary) as engine:
        while rows := reader.events():
            events = _decoded(rows)
            for recorded in events:
                state = fold(state, recorded)
            changed = project(live, events)
            _write(engine, temporary, rows, list(changed.values()))
            live = {task_id: row for task_id, row in (live | changed).items() if row.ended_at is None}
            on_progress(state.position, header.count)
        while generations := reader.generations():
            with connections.explained(temporary), engine.begin() as connection:
                connection.exec_driver_sql(statements.KEEP_GENERATION, generations)
        footer = reader.end(header, state)
        if state.position:
            with connections.explained(temporary), engine.begin() as connection:
                connection.exec_driver_sql(statements.PUT_SNAPSHOT, snapshots.encode(state))
    return footer


def _decoded(rows: list[StoredEvent]) -> list[Recorded]:
    try:
        return codec.decode(rows)
    except Undecodable as error:
        raise BadArchive(error.position + 1, f"the event {error.why}", error.position) from error


def _write(engine: Engine, path: Path, rows: list[StoredEvent], generations: list[GenerationRow]) -> None:
    causes = statements.first_causes(rows)
    with connections.explained(path), engine.begin() as connection:
        connection.exec_driver_sql(statements.INSERT_EVENTS, [*rows])
        if causes:
            connection.exec_driver_sql(statements.INSERT_INBOX, causes)
        if generations:
            connection.exec_driver_sql(statements.PUT_GENERATION, [*generations])


class _Reader:
    """The lines of an exported log, each checked against those before it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._number = 0
        """Of the line that was read last, from 1."""
        self._position = 0
        self._chain = codec.GENESIS
        self._sha256 = hashlib.sha256()
        self._next: StoredEvent | GenerationRow | Footer | None = None
        """What was read and is not used up yet."""

    def header(self) -> Header:
        """The first line."""
        header = archive.read_header(self._line())
        if header.first != 1 or header.chain_before != codec.GENESIS:
            why = f"the file begins at position {header.first}; only a log from its first event on can be imported"
            raise BadArchive(1, f"{why}: export it without --from")
        self._advance()
        return header

    def events(self) -> list[StoredEvent]:
        """The next page of events; none when there are no more."""
        rows: list[StoredEvent] = []
        while len(rows) < PAGE and isinstance(self._next, StoredEvent):
            self._link(self._next)
            rows.append(self._next)
            self._advance()
        return rows

    def generations(self) -> list[GenerationRow]:
        """The next page of generations without events; none when there are no more."""
        rows: list[GenerationRow] = []
        while len(rows) < PAGE and isinstance(self._next, GenerationRow):
            rows.append(self._next)
            self._advance()
        return rows

    def end(self, header: Header, state: State) -> Footer:
        """The footer, which agrees with all that came before it, and is the last line."""
        footer, number = self._next, self._number
        if not isinstance(footer, Footer):
            raise BadArchive(number, "an event comes after the generations: the lines were put in another order")
        found = (self._position, self._position, self._chain, self._sha256.hexdigest())
        if found != (footer.count, footer.position, footer.chain, footer.sha256) or header.count != footer.count:
            raise BadArchive(number, "the footer does not agree with the lines before it: the file was changed")
        if footer.state_schema == schema_digest() and footer.state_digest != state_digest(state):
            raise BadArchive(number, "the events do not lead to the State that the footer names")
        if self._source.read(1):
            raise BadArchive(number + 1, "something comes after the footer")
        return footer

    def _advance(self) -> None:
        line = self._line()
        self._next = archive.read_line(line, self._number, self._position + 1)
        if not isinstance(self._next, Footer):
            self._sha256.update(line)

    def _line(self) -> bytes:
        self._number += 1
        try:
            line = self._source.readline(archive.LINE_MOST)
        except zstandard.ZstdError as error:
            raise BadArchive(self._number, f"the compressed file is damaged: {error}", self._position + 1) from error
        if not line:
            where = f"ends after the event at position {self._position}" if self._position else "is empty"
            raise BadArchive(self._number, f"the file {where}, without its footer: it was cut off; export it again")
        if self._number == 1:
            self._sha256.update(line)
        return line

    def _link(self, row: StoredEvent) -> None:
        self._position += 1
        if row.position != self._position:
            why = f"here should be the event at position {self._position}, and it is the one at {row.position}"
            raise BadArchive(self._number, why, self._position)
        if not codec.follows(row, self._chain):
            why = "the event was changed, or the one before it: its chain does not follow"
            raise BadArchive(self._number, why, self._position)
        self._chain = row.chain


@contextmanager
def _connected(path: Path) -> Generator[Engine]:
    engine = connections.migrator(path)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _left_nothing(temporary: Path) -> Generator[None]:
    try:
        yield
    finally:
        _forget(temporary)


def _forget(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Has the disk keep a renamed file's new name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
