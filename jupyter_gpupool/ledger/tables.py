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
    Column("stops", Integer, nullable=False, server_default="0"),
    Column("in_vain", Integer, nullable=False, server_default="0"),
    Column("saved_ms", Integer, nullable=False, server_default="0"),
    Column("progress_ppm", Integer, nullable=False, server_default="0"),
    Column("array", Integer),
    Column("index", Integer),
    _json("after"),
    _json("after_any"),
    Column("retries", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Index("jobs_owner_key", "owner", "key", unique=True),
)

arrays = Table(
    "arrays",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("owner", String, nullable=False),
    Column("submitted", Integer, nullable=False),
    Column("tasks", Text, nullable=False),
    Column("rest", Text, nullable=False),
    Column("limit", Integer),
    Column("limit_s", Integer, nullable=False),
    Column("first", Integer, nullable=False),
    Column("key", String),
    Column("held", Text, nullable=False),
    Column("cancelled", Text, nullable=False),
    Index("arrays_owner_key", "owner", "key", unique=True),
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
    Column("grace_s", Integer, nullable=False, server_default="0"),
    Column("asked", Integer),
    Column("cause", String, nullable=False, server_default=""),
    Column("taker", Integer),
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

boosts = Table(
    "boosts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("group", String, nullable=False),
    Column("user", String),
    Column("giver", String),
    _json("amounts"),
    Column("budget", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("because", Text, nullable=False),
    Column("by", String, nullable=False),
    Column("at", Integer, nullable=False),
    Column("ended", Integer),
)

reservations = Table(
    "reservations",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    _json("cards"),
    _json("groups"),
    _json("users"),
    Column("giver", String),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("because", Text, nullable=False),
    Column("by", String, nullable=False),
    Column("at", Integer, nullable=False),
    Column("ended", Integer),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("user", String, nullable=False),
    Column("group", String, nullable=False),
    _json("wants"),
    Column("because", Text, nullable=False),
    Column("at", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("by", String),
    Column("answer", Text, nullable=False),
    Column("decided", Integer),
    Column("grant", Integer),
)

drains = Table(
    "drains",
    metadata,
    Column("node", String, primary_key=True),
    Column("because", Text, nullable=False),
    Column("by", String, nullable=False),
    Column("at", Integer, nullable=False),
)

over = Table(
    "over_quota",
    metadata,
    Column("group", String, primary_key=True),
    Column("since", Integer, nullable=False),
)

actions = Table(
    "actions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Integer, nullable=False),
    Column("by", String, nullable=False),
    Column("action", String, nullable=False),
    Column("text", Text, nullable=False),
)

charges = Table(
    "charges",
    metadata,
    Column("lease", Integer, primary_key=True, autoincrement=False),
    Column("group", String, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False, index=True),
    Column("rate", Integer, nullable=False),
)

days = Table(
    "days",
    metadata,
    Column("start", Integer, primary_key=True, autoincrement=False),
    Column("end", Integer, nullable=False),
)


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


uses = Table(
    "uses",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("group", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("kind", String, primary_key=True),
    _count("gpu_milli_s"),
    _count("charged_milli_s"),
    _count("submitted"),
    _count("started"),
    _count("wait_s"),
    _count("completed"),
    _count("failed"),
    _count("cancelled"),
    _count("timed_out"),
    _count("stopped"),
    _count("known_milli_s"),
    _count("used_milli_s"),
    _count("idle_s"),
    _count("idled"),
    _json("waits", nullable=True),
)

card_uses = Table(
    "card_uses",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("card", String, primary_key=True),
    _count("touched_s"),
    _count("held_mib_s"),
    _count("known_s"),
    _count("used_milli_s"),
)

notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String, nullable=False),
    Column("channel", String, nullable=False),
    Column("user", String),
    Column("subject", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("at", Integer, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("tries", Integer, nullable=False),
    Column("due", Integer, nullable=False),
    Index("notices_key_channel", "key", "channel", unique=True),
)
