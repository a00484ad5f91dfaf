"""Use by day, which outlives the records it is added up from.

Owns: the tables `days`, `uses` and `card_uses`: a day that is over is written down once, as the records have
it; what only can be measured while it happens is added to the day as it comes. Never: a meaning for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects.sqlite import insert

from jupyter_gpupool.ledger import tables
from jupyter_gpupool.ledger.database import Contents, Database
from jupyter_gpupool.ledger.records import Job, LeaseRecord, SessionRecord
from jupyter_gpupool.ledger.use import CardUse, DayUse, Key, Use, days_between, midnight, use_of_days

SETTLE_S = 3600
"""A day is written down so long after its end: a clock that is set back a little loses nothing."""
MEASURED = ("known_milli_s", "used_milli_s", "idle_s", "idled")
MEASURED_OF_CARD = ("known_s", "used_milli_s")


class Days:
    """The days of one ledger; errors as in `Ledger`.

    Parameters
    ----------
    contents
        The records, for the days that are not written down yet.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents

    def closed(self) -> int | None:
        """Return until when all is written down; None = no day is."""
        with self._database.transaction() as connection:
            return _closed(connection)

    def close(self, zone: ZoneInfo, now: int) -> int:
        """Write down the days that are over; return until when all is: what ended before may be dropped."""
        records = self._records()
        edges = days_between(zone, records.since(zone, self.closed(), now), now)
        while len(edges) > 1 and edges[-1] + SETTLE_S > now:
            edges.pop()
        found = records.days(edges, now)
        if found:
            with self._database.transaction() as connection:
                for day in found:
                    _write(connection, day)
        return edges[-1]

    def measured(
        self, zone: ZoneInfo, now: int, uses: Mapping[Key, Use], cards: Mapping[str, CardUse]
    ) -> None:
        """Add to today what was measured lately: the fields `MEASURED`, and those of cards."""
        day = max(midnight(zone, now), self.closed() or 0)
        with self._database.transaction() as connection:
            _add(connection, tables.uses, MEASURED, _use_rows(day, uses))
            _add(connection, tables.card_uses, MEASURED_OF_CARD, _card_rows(day, cards))

    def between(self, zone: ZoneInfo, since: int, until: int, now: int) -> Callable[[], list[DayUse]]:
        """Return what reads, in any thread, the days that overlap [since, until), as far as known at `now`.

        The oldest comes first.
        """
        return partial(_between, self._database, self._records(), zone, since, until, now)

    def _records(self) -> Records:
        there = self._contents
        return Records(list(there.jobs.values()), list(there.sessions.values()), list(there.leases.values()))


@dataclass(frozen=True)
class Records:
    """All records at one moment."""

    jobs: Sequence[Job]
    sessions: Sequence[SessionRecord]
    leases: Sequence[LeaseRecord]

    def days(self, edges: Sequence[int], now: int) -> list[DayUse]:
        """Return the days between neighbours of `edges`."""
        if len(edges) < 2:
            return []
        return use_of_days(self.jobs, self.sessions, self.leases, edges, now)

    def since(self, zone: ZoneInfo, closed: int | None, now: int) -> int:
        """Return the beginning of the first day that is not written down."""
        if closed is not None:
            return closed
        jobs = (job.submitted for job in self.jobs)
        sessions = (session.submitted for session in self.sessions)
        return midnight(zone, min(chain(jobs, sessions), default=now))


def _between(
    database: Database, records: Records, zone: ZoneInfo, since: int, until: int, now: int
) -> list[DayUse]:
    with database.reading() as connection:
        first = records.since(zone, _closed(connection), now)
        last = min(until, now + 1)
        edges = days_between(zone, first, last) if first < last else [first]
        written = _read(connection, since, until, edges)
    found = [
        written.pop(day.start, DayUse(day.start, day.end)).joined(day) for day in records.days(edges, now)
    ]
    return [day for day in (*written.values(), *found) if day.end > since and day.start < until]


def _closed(connection: Connection) -> int | None:
    found: int | None = connection.execute(select(func.max(tables.days.c.end))).scalar()
    return found


def _write(connection: Connection, day: DayUse) -> None:
    """Write a day down beside what was measured on it."""
    connection.execute(insert(tables.days).values(start=day.start, end=day.end))
    counted = [
        column.name for column in tables.uses.c if not column.primary_key and column.name not in MEASURED
    ]
    _add(connection, tables.uses, counted, _use_rows(day.start, day.uses))
    _add(connection, tables.card_uses, ("touched_s", "held_mib_s"), _card_rows(day.start, day.cards))


def _add(connection: Connection, table: Table, names: Iterable[str], rows: Iterable[dict[str, Any]]) -> None:
    """Insert rows, or add the columns `names` to the rows that are there; `waits` come once, and are set."""
    adding = insert(table)
    changes = {
        name: adding.excluded[name] if name == "waits" else table.c[name] + adding.excluded[name]
        for name in names
    }
    upsert = adding.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changes)
    if found := list(rows):
        connection.execute(upsert, found)


def _use_rows(day: int, uses: Mapping[Key, Use]) -> Iterator[dict[str, Any]]:
    for (group, user, kind), use in uses.items():
        yield {"day": day, "group": group, "user": user, "kind": kind} | vars(use)


def _card_rows(day: int, cards: Mapping[str, CardUse]) -> Iterator[dict[str, Any]]:
    for card, use in cards.items():
        yield {"day": day, "card": card} | vars(use)


def _read(connection: Connection, since: int, until: int, edges: list[int]) -> dict[int, DayUse]:
    """Return what is written of the days that overlap an interval, whole ones and those of `edges`."""
    days, uses, cards = tables.days, tables.uses, tables.card_uses
    written = connection.execute(select(days.c.start, days.c.end).where(days.c.end > since))
    ends = dict([*map(tuple, written), *pairwise(edges)])
    first = min(ends, default=until)
    found: dict[int, tuple[dict[Key, Use], dict[str, CardUse]]] = {start: ({}, {}) for start in sorted(ends)}
    for row in connection.execute(_during(uses, first, until)).mappings():
        values = dict(row)
        day, key = values.pop("day"), (values.pop("group"), values.pop("user"), values.pop("kind"))
        values["waits"] = {int(wait): count for wait, count in (values["waits"] or {}).items()}
        if day in found:
            found[day][0][key] = Use(**values)
    for row in connection.execute(_during(cards, first, until)).mappings():
        values = dict(row)
        day, card = values.pop("day"), values.pop("card")
        if day in found:
            found[day][1][card] = CardUse(**values)
    return {start: DayUse(start, ends[start], *there) for start, there in found.items()}


def _during(table: Table, first: int, until: int) -> Any:
    return select(table).where(table.c.day >= first, table.c.day < until)
