"""Writes a log as JSON lines, also while a master appends to it."""

import hashlib
from collections.abc import AsyncIterator
from typing import BinaryIO

from sqlalchemy import func, select

from exo import __version__
from exo.domain.fold import fold
from exo.domain.ids import TaskId
from exo.domain.shape import schema_digest
from exo.domain.state import State
from exo.errors import Fatal
from exo.log import codec
from exo.log import tables as t
from exo.log.codec import StoredEvent
from exo.log.moving import archive
from exo.log.moving.archive import Footer, Header, OnProgress
from exo.log.projection import GenerationRow
from exo.log.reading import PAGE, LogReader
from exo.log.replay import load_state
from exo.log.snapshots import state_digest


async def export_log(
    store: LogReader,
    target: BinaryIO,
    *,
    first: int = 1,
    last: int | None = None,
    on_progress: OnProgress = lambda _position, _end: None,
) -> Footer:
    """Writes the events from `first` to `last` (None: the last of now), and returns the footer.

    Every link of the chain is checked on the way. Raises Fatal, naming the position, where the log is damaged.
    """
    end = store.position if last is None else last
    output = _Digesting(target)
    before = await _chain_at(store, first - 1)
    dropped = await _compacted_rows(store, end)
    output.write(archive.header_line(Header(exo=__version__, count=end - first + 1, first=first, chain_before=before)))
    state, chain = await load_state(store, first - 1), before
    compacted_until: float | None = None
    async for page in _pages(store, first, end):
        _check_links(page, state.position, chain)
        for row, recorded in zip(page, codec.decode(page), strict=True):
            state = fold(state, recorded)
            if row.type == codec.COMPACTED:
                compacted_until = row.recorded_at
            output.write(archive.event_line(row))
        chain = page[-1].chain
        on_progress(state.position, end)
    if state.position != end:
        raise Fatal(f"the log ends at position {state.position}, not at {end}: run `exo log verify`")
    if compacted_until is not None:
        await _write_generations(store, compacted_until, output)
    if await _compacted_rows(store, end) != dropped:
        raise Fatal("the log was compacted while it was read: export it again")
    footer = _footer(state, chain, end - first + 1, output)
    output.write(archive.footer_line(footer))
    return footer


class _Digesting:
    """Passes lines on and keeps a digest of them."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.sha256 = hashlib.sha256()

    def write(self, line: bytes) -> None:
        self.sha256.update(line)
        self._target.write(line)


def _footer(state: State, chain: str, count: int, output: _Digesting) -> Footer:
    return Footer(
        count=count,
        position=state.position,
        chain=chain,
        state_digest=state_digest(state),
        state_schema=schema_digest(),
        sha256=output.sha256.hexdigest(),
    )


def _check_links(page: list[StoredEvent], position: int, chain: str) -> None:
    for row in page:
        position += 1
        if row.position != position:
            raise Fatal(f"the event at position {position} is missing: run `exo log verify`")
        if not codec.follows(row, chain):
            raise Fatal(f"the event at position {position} was changed, or the one before it: run `exo log verify`")
        chain = row.chain


async def _chain_at(store: LogReader, position: int) -> str:
    if position == 0:
        return codec.GENESIS
    rows = await store.rows(position - 1, 1)
    if not rows or rows[0].position != position:
        raise Fatal(f"the event at position {position} is missing: run `exo log verify`")
    return rows[0].chain


async def _pages(store: LogReader, first: int, end: int) -> AsyncIterator[list[StoredEvent]]:
    after = first - 1
    while after < end and (page := await store.rows(after, min(PAGE, end - after))):
        yield page
        after = page[-1].position


async def _compacted_rows(store: LogReader, end: int) -> int:
    events = t.events.c
    query = select(func.count()).where(events.type == codec.COMPACTED, events.position <= end)
    async with store.connect() as connection:
        return await connection.scalar(query) or 0


async def _write_generations(store: LogReader, until: float, output: _Digesting) -> None:
    """The generations that ended up to the last compacted event: some of them are in no event any more."""
    table = t.generations.c
    after = TaskId("")
    while True:
        query = select(t.generations).where(table.ended_at <= until, table.task_id > after)
        async with store.connect() as connection:
            found = await connection.execute(query.order_by(table.task_id).limit(PAGE))
            rows = [GenerationRow._make(row) for row in found]
        for row in rows:
            output.write(archive.generation_line(row))
        if len(rows) < PAGE:
            return
        after = rows[-1].task_id
