"""The schema's version: refuses a newer one, upgrades an older one.

Owns the list of revisions. Alembic is loaded only when there is something to upgrade: neither an ordinary
start nor the first one pays for it.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from jupyter_gpupool.ledger import tables
from jupyter_gpupool.ledger.errors import LedgerError

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")
"""Oldest first; the last is what `tables` describes."""
HEAD = REVISIONS[-1]
_VERSION = text(
    "CREATE TABLE alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def revision(connection: Connection) -> str | None:
    """Return the schema's version, or None for an empty database."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def upgrade(connection: Connection, to: str = HEAD) -> None:
    """Bring the schema to a version, all of it or nothing, within the connection's transaction.

    Raises
    ------
    LedgerError
        If a newer version of this package wrote the database.
    """
    present = revision(connection)
    if present == to:
        return
    if present is not None and present not in REVISIONS:
        raise LedgerError(
            f"The ledger was written by a newer jupyter-gpupool (schema {present}; this version knows up to "
            f"{HEAD}): install that version again, or set another GPUPOOL_HOME."
        )
    if present is None and to == HEAD:
        tables.metadata.create_all(connection, checkfirst=False)
        connection.execute(_VERSION)
        connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "jupyter_gpupool.ledger:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, to)
