"""State as text: digests, and the rows of the table `snapshots`."""

import hashlib
from typing import NamedTuple

from pydantic import ValidationError

from exo.domain.shape import schema_digest
from exo.domain.state import State

SNAPSHOT_EVERY = 10_000
"""Events between snapshots: folding that many takes a fraction of a second."""
SNAPSHOTS_KEPT = 3
"""The newest, and two in case it cannot be read."""


class StoredSnapshot(NamedTuple):
    """One row, in the order of the table's columns."""

    position: int
    schema: str
    state: str
    digest: str


def state_digest(state: State) -> str:
    """SHA-256, hexadecimal, of a State's JSON. Equal states give equal bytes: their maps are written sorted."""
    return text_digest(state.model_dump_json())


def text_digest(text: str) -> str:
    """SHA-256, hexadecimal, of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def encode(state: State) -> StoredSnapshot:
    """The row of a snapshot."""
    text = state.model_dump_json()
    return StoredSnapshot(state.position, schema_digest(), text, text_digest(text))


def is_whole(row: StoredSnapshot) -> bool:
    """Whether the text of a snapshot is the one that was written."""
    # SQLite keeps bytes in a column for text, if somebody puts them there.
    return isinstance(row.state, str) and row.digest == text_digest(row.state)  # pyright: ignore[reportUnnecessaryIsInstance]


def decode(row: StoredSnapshot) -> State | None:
    """The State of a snapshot; None where it was made under another schema, or is damaged."""
    if row.schema != schema_digest() or not is_whole(row):
        return None
    try:
        state = State.model_validate_json(row.state)
    except ValidationError:
        return None
    return state if state.position == row.position else None
