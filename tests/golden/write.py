"""`make golden`: writes the golden log of the version in `pyproject.toml`. Run when that version is released.

A history of three nodes, decided and folded by the real functions, in a real file. Every type of event is in it, and no
prompt. The shapes of its events go to `schemas.json`, where those that an earlier version wrote never change.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from random import Random

from exo.domain.messages.events import Recorded
from exo.domain.messages.upcast import VERSIONS
from exo.domain.state import State
from exo.log import codec
from exo.log.replay import load_state, schema_digest, state_digest
from exo.log.store import LogStore
from exo.log.verify import verify
from tests.golden.files import HERE, SCHEMAS, Golden, goldens, shapes_kept, shapes_now
from tests.property.cluster_histories import Cluster

EVENTS = 400
"""At least; more where a type is still missing."""
SEED = 2026


def history() -> list[Recorded]:
    """A history in which each type of event occurs but `Compacted`, which is no decision."""
    cluster, random = Cluster(), Random(SEED)
    for node in range(3):
        cluster.step(2, node, node + 1)
    missing = VERSIONS.keys() - {codec.COMPACTED}
    while missing or len(cluster.log) < EVENTS or not is_rich(cluster.state):
        kind, first, second = random.choice((*range(33), 7, 8, 9, 13, 15, 17, 19)), *random.choices(range(64), k=2)
        if kind in {7, 8, 9} and first % 5 == 0:
            first += 1  # else it would hold a prompt
        missing -= {recorded.entry.event.type for recorded in cluster.step(kind, first, second)}
    return cluster.log


def is_rich(state: State) -> bool:
    """Whether there is something of everything in a State."""
    parts = state.nodes, state.instances, state.runners, state.downloads, state.generations, state.ended, state.failures
    is_running = any(generation.instance_id for generation in state.generations.values())
    return is_running and all((*parts, state.keys, state.added_models, state.prefill_links))


async def write_log(path: Path) -> None:
    """The file that this version makes of the history."""
    events, half = history(), EVENTS // 2
    store = await LogStore.open(path, durable=False)
    await store.append(events[:half])
    await store.write_snapshot(await load_state(store))
    await store.append(events[half:])
    rows = [row for row in await store.rows(0, len(events)) if row.type == "CommandRejected"]
    await store.close()
    # State is the same without them. One in two stays, so that its type is read too.
    compact(path, rows[::2])


def compact(path: Path, rows: list[codec.StoredEvent]) -> None:
    """Drops the content of rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for row in map(codec.compacted, rows):
            connection.execute(
                "UPDATE events SET type = ?, version = ?, cause_id = ?, source = ?, body = ? WHERE position = ?",
                (row.type, row.version, row.cause_id, row.source, row.body, row.position),
            )
        connection.execute(
            "DELETE FROM inbox WHERE message_id NOT IN (SELECT cause_id FROM events WHERE cause_id <> '')"
        )


async def write(golden: Golden) -> None:
    """Writes a version's folder."""
    golden.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "exo.sqlite3"
        await write_log(path)
        with closing(sqlite3.connect(path)) as connection:
            golden.dump.write_text("\n".join(connection.iterdump()) + "\n")
        store = await LogStore.open(path, read_only=True)
        verified, state = await verify(store), await load_state(store, use_snapshot=False)
        await store.close()
    if verified.problems:
        sys.exit("\n".join(map(str, verified.problems)))
    golden.state.write_text(state.model_dump_json())
    facts = {"position": state.position, "schema": schema_digest(), "digest": state_digest(state)}
    golden.facts.write_text(json.dumps(facts, indent=2) + "\n")


def write_shapes(golden: Golden) -> None:
    """Adds the shapes of today. Exits where an earlier version wrote one of them differently."""
    earlier = {name for other in goldens() if other.version != golden.version for name in written(other)}
    kept, now = shapes_kept(), shapes_now()
    changed = [name for name in now if name in earlier and now[name] != kept.get(name)]
    if changed:
        sys.exit(f"{', '.join(changed)}: an earlier version wrote another shape; give it a new version and an upcaster")
    shapes = {name: one for name, one in kept.items() if name in earlier} | now
    SCHEMAS.write_text(json.dumps(dict(sorted(shapes.items())), indent=1) + "\n")


def written(golden: Golden) -> set[str]:
    """Each `Type version` in a version's log."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(golden.dump.read_text())
        return {f"{name} {number}" for name, number in connection.execute("SELECT DISTINCT type, version FROM events")}


if __name__ == "__main__":
    current = Golden(HERE / version("exo"))
    write_shapes(current)
    asyncio.run(write(current))
    print(f"wrote {current.folder}")
