"""The one SQLite connection of the ledger, and what its failures mean.

Write-ahead log, ``synchronous=FULL``: what was committed survives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from jupyter_gpupool.ledger.errors import LedgerUnavailable


def connect(path: Path) -> Connection:
    """Open or create the database file (mode 0600) and return a connection that is kept.

    Raises
    ------
    LedgerUnavailable
        If the file cannot be created, opened or written.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"isolation_level": None},
        poolclass=NullPool,
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise LedgerUnavailable(f"The ledger {path} cannot be opened: {error.strerror}.") from None
    with unavailable(path):
        return engine.connect()


@contextmanager
def unavailable(path: Path) -> Iterator[None]:
    """Turn the database's failures (full or read-only disk, input/output) into `LedgerUnavailable`."""
    try:
        yield
    except DatabaseError as error:
        raise LedgerUnavailable(_sentence(path, error.orig)) from error


def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _no_room(path: Path) -> bool:
    """Tell a full disk where SQLite speaks of input and output: the index of a log takes its room early."""
    try:
        return os.statvfs(path).f_bavail == 0
    except OSError:
        return False


def _sentence(path: Path, error: BaseException | None) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_room(path)):
        return f"The disk of the ledger {path} is full: nothing was changed; free some space, then try again."
    if code == sqlite3.SQLITE_READONLY:
        return f"The ledger {path} is read-only: nothing was changed; make it writable, then try again."
    return f"The ledger {path} cannot be used ({error}): nothing was changed."
