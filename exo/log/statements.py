"""The statements that write, as text for rows that are tuples in the order of the columns: half the time of named
parameters."""

from collections.abc import Sequence

from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import Insert, insert

from exo.log import tables as t
from exo.log.codec import StoredEvent


def _text(statement: Insert) -> str:
    return str(statement.compile(dialect=sqlite.dialect()))


INSERT_EVENTS = _text(insert(t.events))
INSERT_INBOX = _text(insert(t.inbox).on_conflict_do_nothing())
PUT_GENERATION = _text(insert(t.generations).prefix_with("OR REPLACE"))
KEEP_GENERATION = _text(insert(t.generations).on_conflict_do_nothing())
PUT_SNAPSHOT = _text(insert(t.snapshots).prefix_with("OR REPLACE"))


def first_causes(rows: Sequence[StoredEvent]) -> list[tuple[str, int]]:
    """The rows of `inbox` that go with rows of `events`: each message with its first event."""
    causes: dict[str, int] = {}
    for row in rows:
        if row.cause_id is not None:
            causes.setdefault(row.cause_id, row.position)
    return list(causes.items())
