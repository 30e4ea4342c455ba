"""A master that is killed leaves a log that ends after a whole batch."""

import asyncio
import os
import sys
from pathlib import Path

from log_events import history

from exo.log.store import LogStore
from exo.log.verify import verify

BATCH = 20
WRITER = f"""
import asyncio, sys
from pathlib import Path
from log_events import history
from exo.log.store import LogStore

async def main():
    store = await LogStore.open(Path(sys.argv[1]))
    events = history(20_000)
    while True:
        await store.append(events[store.position : store.position + {BATCH}])
        print(store.position, flush=True)

asyncio.run(main())
"""


async def test_what_was_acknowledged_before_a_kill_is_there_and_sound(tmp_path: Path) -> None:
    path = tmp_path / "exo.sqlite3"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        for _ in range(10):
            acknowledged = int(await asyncio.wait_for(process.stdout.readline(), 20))
        process.kill()
        rest, _ = await process.communicate()
        acknowledged = max([acknowledged, *map(int, rest.splitlines())])

        store = await LogStore.open(path)
        assert store.position in (acknowledged, acknowledged + BATCH)
        assert await store.read(0, 20_000) == history(store.position)
        assert (await verify(store)).problems == ()
        await store.close()
