"""The file that SQLite writes ahead into stays small, whoever reads the log meanwhile, and however slowly."""

import asyncio
from functools import partial
from pathlib import Path

from log_events import history

from exo.api.feed import Feed
from exo.bus.client import Bus
from exo.bus.queries import answer_history, answer_queries
from exo.bus.replica import Replica
from exo.domain.messages.events import Recorded
from exo.domain.state import State
from exo.log.store import LogStore
from exo.master.history import events_page, rows_answer

APPENDS, BATCH = 100_000, 100
WAL_MOST = 16 * 2**20
"""Bytes; the log itself comes to some sixty million."""
READ_EVERY = 50
"""Batches that are appended while the slow reader takes one page."""


async def test_the_file_stays_small_while_a_slow_reader_follows(bus: Bus, other_bus: Bus, tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path / "exo.sqlite3", durable=False)
    events = history(APPENDS)

    async def outcome(_message_id: object) -> list[Recorded]:
        return []

    await store.append(events[:BATCH])
    end = State(position=APPENDS)
    await answer_queries(bus, lambda: end, outcome)
    await answer_history(bus, lambda: store.position, partial(events_page, store), partial(rows_answer, store))
    replica = Replica(other_bus)
    following = asyncio.create_task(replica.run())
    reader = Feed(other_bus, replica).after(0)
    largest, position = 0, 0
    for begin in range(BATCH, APPENDS, BATCH):
        await store.append(events[begin : begin + BATCH])
        if begin % (BATCH * READ_EVERY) == 0:
            page = await anext(reader)
            assert page[0].position == position + 1
            position = page[-1].position
            largest = max(largest, (tmp_path / "exo.sqlite3-wal").stat().st_size)
    assert 0 < position < APPENDS  # it is behind, and the file did not wait for it
    assert largest < WAL_MOST
    following.cancel()
    await reader.aclose()
    await store.close()
