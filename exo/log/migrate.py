"""Brings a log's file to the tables of this version."""

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from exo.errors import Fatal
from exo.log import connections
from exo.log.tables import REVISION, metadata, snapshots

_one_at_a_time = threading.Lock()
"""Alembic keeps the migration that runs in globals."""


def scripts() -> Path:
    """The folder of the migrations: inside an installed package, at the top of a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def migrate(path: Path) -> None:
    """Makes the file and its folder, or brings its tables up to date; all in one transaction.

    Blocks: call it on a thread. Raises Fatal where a newer version made the file, or it cannot be written.
    """
    with connections.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = connections.migrator(path)
        try:
            with engine.begin() as connection:
                found = _revision(connection)
                if found != REVISION:
                    _refuse_newer(path, found)
                    _upgrade(connection)
                # It only saves time: a file that lost it is as good as one that never had any.
                snapshots.create(connection, checkfirst=True)
        finally:
            engine.dispose()


def check(path: Path) -> None:
    """Raises Fatal unless the file is there and has the tables of this version. Blocks; changes nothing."""
    check_exists(path)
    with connections.explained(path):
        engine = connections.inspector(path)
        try:
            with engine.connect() as connection:
                found = _revision(connection)
        finally:
            engine.dispose()
    if found != REVISION:
        _refuse_newer(path, found)
        raise Fatal(f"the event log {path} was made by an older version: run `exo log migrate`")


def check_exists(path: Path) -> None:
    """Raises Fatal unless there is a file."""
    if not path.is_file():
        raise Fatal(f"there is no event log at {path}; a node makes it when it first starts")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _refuse_newer(path: Path, found: str | None) -> None:
    # Imported here: a start on a file that is up to date has no need of Alembic.
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    known = {revision.revision for revision in ScriptDirectory(scripts()).walk_revisions()}
    if found is not None and found not in known:
        raise Fatal(f"the event log {path} was made by a newer version (its tables are at {found}): upgrade exo")


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"connection": connection, "metadata": metadata})
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _one_at_a_time:
        command.upgrade(config, "head")
