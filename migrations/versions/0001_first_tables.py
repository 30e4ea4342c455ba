"""The first tables: events, inbox, snapshots, generations."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("recorded_at", sa.Float, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("cause_id", sa.Text),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("chain", sa.Text, nullable=False),
    )
    op.create_index("events_by_cause", "events", ["cause_id"])
    op.create_table(
        "inbox",
        sa.Column("message_id", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("schema", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
    )
    op.create_table(
        "generations",
        sa.Column("task_id", sa.Text, primary_key=True),
        sa.Column("model_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("queued_at", sa.Float, nullable=False),
        sa.Column("dispatched_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.Column("finish_reason", sa.Text),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("cached_tokens", sa.Integer),
        sa.Column("queue_s", sa.Float),
        sa.Column("prefill_s", sa.Float),
        sa.Column("decode_s", sa.Float),
        sa.Column("code", sa.Text),
        sa.Column("error", sa.Text),
    )
    op.create_index("generations_by_end", "generations", ["ended_at"])


def downgrade() -> None:
    for name in ("generations", "snapshots", "inbox", "events"):
        op.drop_table(name)
