"""State as text: digests, and the rows of the table `snapshots`."""

import hashlib
import json
from functools import cache
from typing import NamedTuple

from pydantic import ValidationError

from exo.domain.shape import shape
from exo.domain.state import State

SNAPSHOT_EVERY = 10_000
"""Events between snapshots: folding that many takes a fraction of a second."""
SNAPSHOTS_KEPT = 3
"""The newest, and two in case it cannot be read."""

FOLD = 1
"""Raised by one when the same events come to give another State: snapshots made before are then of no use."""


class StoredSnapshot(NamedTuple):
    """One row, in the order of the table's columns."""

    position: int
    schema: str
    state: str
    digest: str


@cache
def schema_digest() -> str:
    """SHA-256, hexadecimal, of what State looks like and means: a snapshot made under another is not read."""
    schema = json.dumps([FOLD, shape(State)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(schema.encode()).hexdigest()


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


def decode(row: StoredSnapshot) -> State | None:
    """The State of a snapshot; None where it was made under another schema, or is damaged."""
    try:
        if row.schema != schema_digest() or row.digest != text_digest(row.state):
            return None
        state = State.model_validate_json(row.state)
    except (ValidationError, TypeError, AttributeError):
        return None  # SQLite keeps bytes in a column for text, if somebody puts them there
    return state if state.position == row.position else None
