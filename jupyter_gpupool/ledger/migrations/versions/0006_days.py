"""Use by day, and what was told to whom."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "days",
        sa.Column("start", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("end", sa.Integer(), nullable=False),
    )
    op.create_table(
        "uses",
        sa.Column("day", sa.Integer(), primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.String(), primary_key=True) for name in ("group", "user", "kind")),
        *_counts("gpu_milli_s", "charged_milli_s", "submitted", "started", "wait_s"),
        *_counts("completed", "failed", "cancelled", "timed_out", "stopped"),
        *_counts("known_milli_s", "used_milli_s", "idle_s", "idled"),
        sa.Column("waits", sa.JSON(none_as_null=True), nullable=True),
    )
    op.create_table(
        "card_uses",
        sa.Column("day", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("card", sa.String(), primary_key=True),
        *_counts("touched_s", "held_mib_s", "known_s", "used_milli_s"),
    )
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due", sa.Integer(), nullable=False),
    )
    op.create_index("ix_notices_state", "notices", ["state"])
    op.create_index("notices_key_channel", "notices", ["key", "channel"], unique=True)


def _counts(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in names]
