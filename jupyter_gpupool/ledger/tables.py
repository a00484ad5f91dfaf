"""The tables of the ledger, as they are at the newest revision.

Columns carry the names of the records' fields. A change here needs a migration; a test compares both.
"""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()


def _json(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, JSON(none_as_null=True), nullable=nullable)


jobs = Table(
    "jobs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("owner", String, nullable=False),
    Column("group", String, nullable=False),
    Column("name", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("state", String, nullable=False),
    Column("priority", String, nullable=False),
    Column("submitted", Integer, nullable=False),
    Column("limit_s", Integer, nullable=False),
    Column("grace_s", Integer, nullable=False),
    _json("request"),
    _json("entry"),
    Column("workdir", Text, nullable=False),
    Column("workdir_mode", String, nullable=False),
    Column("resumable", Boolean, nullable=False),
    Column("window", String),
    Column("snapshot", String),
    Column("environment", String, nullable=False),
    _json("interpreter"),
    _json("provenance"),
    _json("notify"),
    Column("key", String),
    Column("held", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("not_before", Integer, nullable=False),
    Column("age_s", Integer, nullable=False),
    Column("waiting_since", Integer),
    Column("started", Integer),
    Column("ended", Integer),
    Column("exit_code", Integer),
    Column("signal", Integer),
    _json("diagnosis", nullable=True),
    Column("lease", Integer),
    Index("jobs_owner_key", "owner", "key", unique=True),
)

environments = Table(
    "environments",
    metadata,
    Column("digest", String, primary_key=True),
    _json("content"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("owner", String, nullable=False),
    Column("group", String, nullable=False),
    Column("name", String, nullable=False),
    _json("request"),
    Column("limit_s", Integer, nullable=False),
    Column("priority", String, nullable=False),
    Column("pid", Integer),
    Column("starttime", Integer),
    Column("boot_id", String, nullable=False),
    Column("state", String, nullable=False),
    Column("submitted", Integer, nullable=False),
    Column("started", Integer),
    Column("ended", Integer),
    Column("reason", Text, nullable=False),
    Column("lease", Integer),
    Column("server", String),
)

leases = Table(
    "leases",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("work", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("owner", String, nullable=False),
    Column("group", String, nullable=False),
    Column("priority", String, nullable=False),
    _json("request"),
    _json("placement"),
    Column("mode", String, nullable=False),
    Column("charge_milli", Integer, nullable=False),
    Column("resumable", Boolean, nullable=False),
    Column("state", String, nullable=False),
    Column("boot_id", String, nullable=False),
    Column("requested", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("freed", Integer),
    Index("leases_work_attempt", "work", "attempt", unique=True),
)

promises = Table(
    "promises",
    metadata,
    Column("work", Integer, primary_key=True, autoincrement=False),
    Column("start", Integer, nullable=False),
    _json("placement"),
    Column("made", Integer, nullable=False),
)

cards = Table(
    "cards",
    metadata,
    Column("uuid", String, primary_key=True),
    Column("node", String, nullable=False),
    Column("index", Integer, nullable=False),
    Column("model", String, nullable=False),
    Column("memory_mib", Integer, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("group", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("nano", Integer, nullable=False),
    Column("at", Integer, nullable=False),
)

notes = Table(
    "notes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Integer, nullable=False),
    Column("work", Integer, nullable=False, index=True),
    Column("text", Text, nullable=False),
)

moves = Table(
    "moves",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Integer, nullable=False),
    Column("work", Integer, nullable=False, index=True),
    Column("was", Integer, nullable=False),
    Column("now", Integer, nullable=False),
    Column("cause", Text, nullable=False),
)

sequences = Table(
    "sequences",
    metadata,
    Column("name", String, primary_key=True),
    Column("next", Integer, nullable=False),
)
