"""A log on disk keeps any history: read again it gives the same State, from any snapshot, and is found sound."""

import asyncio
import tempfile
from pathlib import Path

from cluster_histories import Cluster, Step, histories, run
from hypothesis import given, settings
from hypothesis import strategies as st

from exo.log.replay import load_state
from exo.log.store import LogStore
from exo.log.verify import verify


@settings(max_examples=30)
@given(histories, st.integers(1, 20), st.integers(0, 100))
def test_a_log_gives_back_what_it_was_given(history: list[Step], batch: int, snapshot_at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write_and_read(run(history), Path(folder) / "exo.sqlite3", batch, snapshot_at))


async def write_and_read(cluster: Cluster, path: Path, batch: int, snapshot_at: int) -> None:
    store = await LogStore.open(path, durable=False)
    for start in range(0, len(cluster.log), batch):
        await store.append(cluster.log[start : start + batch])
    if snapshot_at <= store.position:
        await store.write_snapshot(await load_state(store, snapshot_at))
    await store.close()

    store = await LogStore.open(path, durable=False)
    assert await store.read(0, 10_000) == cluster.log
    assert (await load_state(store)).model_dump_json() == cluster.state.model_dump_json()
    assert (await load_state(store, use_snapshot=False)).model_dump_json() == cluster.state.model_dump_json()
    assert (await verify(store)).problems == ()
    await check_inbox(store, cluster)
    await store.close()


async def check_inbox(store: LogStore, cluster: Cluster) -> None:
    """A message that comes again is known by its id if it had an effect, and only then."""
    first = {one.entry.cause_id: one.position for one in reversed(cluster.log) if one.entry.cause_id is not None}
    ids = [message_id for message_id, _, _ in cluster.messages]
    assert await store.seen(ids) == first
    assert set(first) == {message_id for message_id, _, events in cluster.messages if events}
