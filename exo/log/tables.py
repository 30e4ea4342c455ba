"""The tables of the log. The migrations make exactly these."""

from sqlalchemy import Column, Float, Index, Integer, MetaData, Table, Text

REVISION = "0001"
"""Of the newest migration. A file that is at it needs none."""

metadata = MetaData()

events = Table(
    "events",
    metadata,
    Column("position", Integer, primary_key=True),
    Column("recorded_at", Float, nullable=False),
    Column("type", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("cause_id", Text),
    Column("source", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("chain", Text, nullable=False),
    Index("events_by_cause", "cause_id"),
)
"""One row an event. `body` is its JSON, or a digest where that was compacted; `chain` as in `exo.log.codec.linked`."""

inbox = Table(
    "inbox",
    metadata,
    Column("message_id", Text, primary_key=True),
    Column("position", Integer, nullable=False),
)
"""The messages that led to events, each with the position of the first of them."""

snapshots = Table(
    "snapshots",
    metadata,
    Column("position", Integer, primary_key=True),
    Column("schema", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("digest", Text, nullable=False),
)
"""State at some positions, so that a start folds only what came after."""

generations = Table(
    "generations",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("model_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("queued_at", Float, nullable=False),
    Column("dispatched_at", Float),
    Column("ended_at", Float),
    Column("finish_reason", Text),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("queue_s", Float),
    Column("prefill_s", Float),
    Column("decode_s", Float),
    Column("code", Text),
    Column("error", Text),
    Index("generations_by_end", "ended_at"),
)
"""Every generation that there ever was: a projection of the events, for usage and statistics.

Times are seconds since the epoch, durations (`_s`) seconds. NULL: it did not come to that.
"""
