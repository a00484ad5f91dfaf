"""The tables of grants, and their image in memory.

Owns: how boosts, reservations, requests, drains and what goes with them are loaded, written, and followed in
memory after a commit. Never: a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import Connection, func, insert, select

from jupyter_gpupool.ledger import tables
from jupyter_gpupool.ledger.grant_records import (
    ActionRecord,
    BoostRecord,
    ChargeRecord,
    DrainRecord,
    OverRecord,
    RequestRecord,
    RequestState,
    ReservationRecord,
)
from jupyter_gpupool.ledger.rows import TEXTS, Form, Rows

_ROWS: Mapping[str, Rows[Any]] = {
    "boosts": Rows(tables.boosts, BoostRecord),
    "reservations": Rows(tables.reservations, ReservationRecord, cards=TEXTS, groups=TEXTS, users=TEXTS),
    "requests": Rows(tables.requests, RequestRecord, state=Form(str, RequestState)),
    "drains": Rows(tables.drains, DrainRecord),
    "over": Rows(tables.over, OverRecord),
}


@dataclass
class GrantChange:
    """What one transaction adds or replaces, by number or name (None: it is dropped), or only adds."""

    boosts: dict[int, BoostRecord | None] = field(default_factory=dict)
    reservations: dict[int, ReservationRecord | None] = field(default_factory=dict)
    requests: dict[int, RequestRecord | None] = field(default_factory=dict)
    drains: dict[str, DrainRecord | None] = field(default_factory=dict)
    over: dict[str, OverRecord | None] = field(default_factory=dict)
    actions: list[ActionRecord] = field(default_factory=list)
    charges: list[ChargeRecord] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())


@dataclass
class Granted:
    """The image in memory of what is on disk."""

    boosts: dict[int, BoostRecord] = field(default_factory=dict)
    reservations: dict[int, ReservationRecord] = field(default_factory=dict)
    requests: dict[int, RequestRecord] = field(default_factory=dict)
    drains: dict[str, DrainRecord] = field(default_factory=dict)
    over: dict[str, OverRecord] = field(default_factory=dict)

    def load(self, connection: Connection) -> None:
        """Read everything."""
        for name, rows in _ROWS.items():
            found = getattr(self, name)
            for record in rows.load(connection):
                found[getattr(record, rows.key)] = record

    def save(self, connection: Connection, change: GrantChange) -> None:
        """Write a change within the connection's transaction."""
        for name, rows in _ROWS.items():
            changed = getattr(change, name)
            rows.delete(connection, changed.keys() & getattr(self, name).keys())
            rows.insert(connection, [record for record in changed.values() if record is not None])
        for table, records in ((tables.actions, change.actions), (tables.charges, change.charges)):
            if records:
                connection.execute(insert(table), [vars(record) for record in records])

    def apply(self, change: GrantChange) -> None:
        """Follow a change that was committed."""
        for name in _ROWS:
            image = getattr(self, name)
            for key, record in getattr(change, name).items():
                if record is None:
                    image.pop(key, None)
                else:
                    image[key] = record


def newest_actions(connection: Connection, limit: int) -> list[ActionRecord]:
    """Return what was done, newest first."""
    columns = [tables.actions.c[one.name] for one in fields(ActionRecord)]
    query = select(*columns).order_by(tables.actions.c.id.desc()).limit(limit)
    return [ActionRecord(*row) for row in connection.execute(query)]


def charged_since(connection: Connection, since: int) -> dict[str, int]:
    """Return what each group's leases that are free have cost after `since`, in micro-GPU seconds."""
    charges = tables.charges.c
    seconds = charges.end - func.max(charges.start, since)
    query = (
        select(charges.group, func.sum(seconds * charges.rate))
        .where(charges.end > since)
        .group_by(charges.group)
    )
    return {group: int(total) for group, total in connection.execute(query)}
