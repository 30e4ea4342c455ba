"""The migrations on a real file."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from exo.errors import Fatal
from exo.log import connections
from exo.log.migrate import migrate, scripts
from exo.log.store import LogStore
from exo.log.tables import REVISION, metadata


def test_they_make_exactly_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "exo.sqlite3"
    migrate(path)
    engine = connections.inspector(path)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_the_newest_is_the_one_that_a_store_asks_for() -> None:
    assert ScriptDirectory(scripts()).get_heads() == [REVISION]


def test_they_print_nothing_and_leave_logging_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = logging.root.level, list(logging.root.handlers), logging.getLogger("alembic").level
    migrate(tmp_path / "exo.sqlite3")
    assert (logging.root.level, list(logging.root.handlers), logging.getLogger("alembic").level) == before
    assert capfd.readouterr() == ("", "")


async def test_several_stores_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "exo.sqlite3"
    stores = await asyncio.gather(*(LogStore.open(path) for _ in range(4)))
    for store in stores:
        await store.close()


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "exo.sqlite3"
    migrate(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Fatal, match=r"made by a newer version \(its tables are at 9999\): upgrade exo"):
        await LogStore.open(path, read_only=read_only)


async def test_a_file_of_an_older_version_is_read_after_migrating(tmp_path: Path) -> None:
    path = tmp_path / "exo.sqlite3"
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(Fatal, match="run `exo log migrate`"):
        await LogStore.open(path, read_only=True)
    migrate(path)
    await (await LogStore.open(path, read_only=True)).close()
