"""Arrays, dependencies and retries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("array", "index"):
        op.add_column("jobs", sa.Column(name, sa.Integer(), nullable=True))
    for name in ("after", "after_any"):
        op.add_column("jobs", sa.Column(name, sa.JSON(), nullable=False, server_default="[]"))
    for name in ("retries", "failures"):
        op.add_column("jobs", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "arrays",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("submitted", sa.Integer(), nullable=False),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.Column("limit", sa.Integer(), nullable=True),
        sa.Column("limit_s", sa.Integer(), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("cancelled", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("arrays_owner_key", "arrays", ["owner", "key"], unique=True)
