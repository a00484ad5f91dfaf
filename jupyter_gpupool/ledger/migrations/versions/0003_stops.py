"""Stops for others, and the progress between them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("stops", "in_vain", "saved_ms", "progress_ppm"):
        op.add_column("jobs", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.add_column("leases", sa.Column("grace_s", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("leases", sa.Column("asked", sa.Integer(), nullable=True))
    op.add_column("leases", sa.Column("cause", sa.String(), nullable=False, server_default=""))
    op.add_column("leases", sa.Column("taker", sa.Integer(), nullable=True))
    op.execute(
        "UPDATE leases SET grace_s = (SELECT grace_s FROM jobs WHERE id = leases.work) WHERE kind = 'job'"
    )
