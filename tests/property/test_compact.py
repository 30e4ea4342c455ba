"""Compacting any history leaves State, chain and usage as they were."""

import asyncio
import io
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

from cluster_histories import Cluster, run
from hypothesis import given, settings
from hypothesis import strategies as st

from exo.domain.fold import fold
from exo.domain.messages.events import Compacted, Recorded
from exo.domain.state import State
from exo.log.moving.compactable import Walk
from exo.log.moving.compacting import Compaction, compact
from exo.log.moving.exporting import export_log
from exo.log.moving.importing import import_log
from exo.log.replay import load_state, state_digest
from exo.log.store import LogStore
from exo.log.verify import verify


def cluster_of(seed: int) -> Cluster:
    """A cluster that has ended more generations than State keeps, among all else that can happen."""
    random = Random(seed)
    steps = [(2, node, variant) for node, variant in ((0, 1), (1, 2), (2, 3))]
    for _ in range(random.randint(100, 220)):
        steps += [(7, random.randrange(64), random.randrange(64)), (10, random.randrange(2), 0)]
        if random.random() < 0.3:
            steps.append((random.randrange(22), random.randrange(64), random.randrange(64)))
    return run(steps)


clusters = st.builds(cluster_of, st.integers(0, 2**32))


@settings(max_examples=20)
@given(clusters, st.floats(0.3, 1.0))
def test_state_does_not_depend_on_what_can_be_dropped(cluster: Cluster, share: float) -> None:
    upto = int(len(cluster.log) * share)
    walk, dropped = Walk(), set[int]()
    for recorded in cluster.log[:upto]:
        if found := walk.add(recorded, 0):
            dropped |= {content.position for content in found.contents}
    with_all, without = State(), State()
    for recorded in cluster.log:
        with_all = fold(with_all, recorded)
        without = fold(without, without_content(recorded) if recorded.position in dropped else recorded)
        if recorded.position >= upto:
            assert without.model_dump_json() == with_all.model_dump_json()


def without_content(recorded: Recorded) -> Recorded:
    entry = recorded.entry.model_copy(update={"cause_id": None, "source": "", "event": Compacted(digest="0" * 64)})
    return recorded.model_copy(update={"entry": entry})


@settings(max_examples=10)
@given(clusters, st.integers(0, 60), st.floats(0.5, 1.0), st.integers(0, 1))
def test_a_compacted_log_is_sound_and_leads_to_the_same_state(
    cluster: Cluster, newest_kept: int, share: float, times: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = cluster.log[int((len(cluster.log) - 1) * share)].entry.recorded_at
        asyncio.run(compact_and_compare(cluster, Path(folder) / "exo.sqlite3", before, newest_kept, times))


async def compact_and_compare(cluster: Cluster, path: Path, before: float, newest_kept: int, times: int) -> None:
    store = await LogStore.open(path, durable=False)
    await store.append(cluster.log)
    await store.close()
    reader = await LogStore.open(path, read_only=True)
    chains, usage = column(path, "SELECT chain FROM events"), column(path, "SELECT * FROM generations")
    planned = await compact(reader, before, dry_run=True, newest_kept=newest_kept)
    assert column(path, "SELECT count(*) FROM events WHERE type = 'Compacted'") == [(0,)]
    done = await compact(reader, before, newest_kept=newest_kept)
    assert (done.events, done.generations, done.content_bytes) == (
        planned.events,
        planned.generations,
        planned.content_bytes,
    )
    for _ in range(times):
        assert (await compact(reader, before, newest_kept=newest_kept)).events == 0
    await check(reader, cluster, done)
    assert column(path, "SELECT chain FROM events") == chains
    assert column(path, "SELECT * FROM generations") == usage
    await check_moved(reader, path.with_name("moved.sqlite3"))
    await reader.close()


async def check(reader: LogStore, cluster: Cluster, done: Compaction) -> None:
    assert (await verify(reader)).problems == ()
    state = await load_state(reader, use_snapshot=False)
    assert state.model_dump_json() == cluster.state.model_dump_json()
    rows = await reader.rows(0, 10_000)
    assert sum(row.type == "Compacted" for row in rows) == done.events
    assert all(row.type != "Compacted" for row in rows if row.position > done.upto)


async def check_moved(reader: LogStore, path: Path) -> None:
    """A compacted log keeps its usage when it is moved."""
    file = io.BytesIO()
    footer = await export_log(reader, file)
    file.seek(0)
    assert import_log(file, path) == footer
    for table in ("events", "inbox", "generations"):
        query = f"SELECT * FROM {table} ORDER BY 1"
        assert column(path, query) == column(reader.path, query)
    moved = await LogStore.open(path, read_only=True)
    found = await verify(moved)
    assert (found.digest, found.problems) == (footer.state_digest, ())
    assert state_digest(await load_state(moved)) == footer.state_digest
    await moved.close()


def column(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()
