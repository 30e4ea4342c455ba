"""Logs as released versions wrote them, and what they lead to. Each folder is named for the version that wrote it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from exo.domain.messages.upcast import VERSIONS, event_classes
from exo.domain.shape import Data, shape

HERE = Path(__file__).parent
SCHEMAS = HERE / "schemas.json"
"""The shape of each version of each event that a released version wrote, by `Type version`."""

Shapes = dict[str, Data]


class Golden(NamedTuple):
    """One version's log."""

    folder: Path

    @property
    def version(self) -> str:
        """That wrote it."""
        return self.folder.name

    @property
    def dump(self) -> Path:
        """The SQLite file as SQL."""
        return self.folder / "log.sql"

    @property
    def state(self) -> Path:
        """State after the last event, byte for byte."""
        return self.folder / "state.json"

    @property
    def facts(self) -> Path:
        """The last position, and the digests of State and of its schema, as that version had them."""
        return self.folder / "facts.json"


def goldens() -> list[Golden]:
    """Every version's, the oldest first."""
    folders = [file.parent for file in HERE.glob("*/log.sql")]
    return [Golden(folder) for folder in sorted(folders, key=lambda one: [int(part) for part in one.name.split(".")])]


def restore(golden: Golden, path: Path) -> Path:
    """Makes the SQLite file at `path` that a version left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(golden.dump.read_text())
    return path


def shapes_now() -> Shapes:
    """The shapes of the events that this program writes."""
    return {f"{name} {VERSIONS[name]}": shape(one) for name, one in event_classes().items()}


def shapes_kept() -> Shapes:
    """Those that are on record."""
    return json.loads(SCHEMAS.read_text()) if SCHEMAS.exists() else {}
