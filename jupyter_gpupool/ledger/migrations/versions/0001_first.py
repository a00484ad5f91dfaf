"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cards",
        sa.Column("uuid", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("uuid"),
    )
    op.create_table(
        "environments",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("content", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("priority", sa.String(), nullable=False),
        sa.Column("submitted", sa.Integer(), nullable=False),
        sa.Column("limit_s", sa.Integer(), nullable=False),
        sa.Column("grace_s", sa.Integer(), nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("entry", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("workdir", sa.Text(), nullable=False),
        sa.Column("workdir_mode", sa.String(), nullable=False),
        sa.Column("resumable", sa.Boolean(), nullable=False),
        sa.Column("window", sa.String(), nullable=True),
        sa.Column("snapshot", sa.String(), nullable=True),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("interpreter", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("provenance", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("notify", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Integer(), nullable=False),
        sa.Column("age_s", sa.Integer(), nullable=False),
        sa.Column("waiting_since", sa.Integer(), nullable=True),
        sa.Column("started", sa.Integer(), nullable=True),
        sa.Column("ended", sa.Integer(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("diagnosis", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("lease", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("jobs_owner_key", "jobs", ["owner", "key"], unique=True)
    op.create_table(
        "leases",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("work", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("priority", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("placement", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("charge_milli", sa.Integer(), nullable=False),
        sa.Column("resumable", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("requested", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("freed", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("leases_work_attempt", "leases", ["work", "attempt"], unique=True)
    op.create_table(
        "moves",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Integer(), nullable=False),
        sa.Column("work", sa.Integer(), nullable=False),
        sa.Column("was", sa.Integer(), nullable=False),
        sa.Column("now", sa.Integer(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_moves_work"), "moves", ["work"], unique=False)
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Integer(), nullable=False),
        sa.Column("work", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_notes_work"), "notes", ["work"], unique=False)
    op.create_table(
        "promises",
        sa.Column("work", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("placement", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("made", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("work"),
    )
    op.create_table(
        "sequences",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("next", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("limit_s", sa.Integer(), nullable=False),
        sa.Column("priority", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("starttime", sa.Integer(), nullable=True),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("submitted", sa.Integer(), nullable=False),
        sa.Column("started", sa.Integer(), nullable=True),
        sa.Column("ended", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("lease", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "usage",
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("nano", sa.Integer(), nullable=False),
        sa.Column("at", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("group", "user"),
    )
