"""Boosts, reservations, requests, drains and budgets."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "boosts",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("user", sa.String()),
        sa.Column("giver", sa.String()),
        sa.Column("amounts", sa.JSON(), nullable=False),
        sa.Column("budget", sa.Integer(), nullable=False),
        *_term(),
    )
    op.create_table(
        "reservations",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("cards", sa.JSON(), nullable=False),
        sa.Column("groups", sa.JSON(), nullable=False),
        sa.Column("users", sa.JSON(), nullable=False),
        sa.Column("giver", sa.String()),
        *_term(),
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("wants", sa.JSON(), nullable=False),
        sa.Column("because", sa.Text(), nullable=False),
        sa.Column("at", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("by", sa.String()),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("decided", sa.Integer()),
        sa.Column("grant", sa.Integer()),
    )
    op.create_table(
        "drains",
        sa.Column("node", sa.String(), primary_key=True),
        sa.Column("because", sa.Text(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("at", sa.Integer(), nullable=False),
    )
    op.create_table(
        "over_quota",
        sa.Column("group", sa.String(), primary_key=True),
        sa.Column("since", sa.Integer(), nullable=False),
    )
    op.create_table(
        "actions",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Integer(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )
    charges = op.create_table(
        "charges",
        sa.Column("lease", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False, index=True),
        sa.Column("rate", sa.Integer(), nullable=False),
    )
    op.bulk_insert(charges, _past_charges(op.get_bind()))


def _term() -> list[sa.Column[Any]]:
    return [
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("because", sa.Text(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("at", sa.Integer(), nullable=False),
        sa.Column("ended", sa.Integer()),
    ]


def _past_charges(connection: sa.Connection) -> list[dict[str, object]]:
    """Return what the leases cost that are free and not yet dropped."""
    leases = connection.execute(
        sa.text(
            'SELECT id, "group", start, freed, placement, charge_milli FROM leases '
            "WHERE state = 'free' AND freed > start"
        )
    )
    rows = [(row, json.loads(row.placement)["gpu_milli"] * row.charge_milli) for row in leases]
    return [
        {"lease": row.id, "group": row.group, "start": row.start, "end": row.freed, "rate": rate}
        for row, rate in rows
        if rate
    ]
