"""Records to rows and back.

Owns the form in which a record lies in its table: a column per field, JSON where the field is a structure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update

from jupyter_gpupool.ledger import tables
from jupyter_gpupool.ledger.records import (
    ArrayRecord,
    CardRecord,
    Job,
    JobState,
    LeaseRecord,
    LeaseState,
    SessionRecord,
    SessionState,
)
from jupyter_gpupool.policy.ranges import array_text, parse_array
from jupyter_gpupool.scheduler.model import GpuShare, Placement, Promise, Request

Record = TypeVar("Record")


class Form(NamedTuple):
    """How one field is written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Rows(Generic[Record]):
    """The rows of one record type.

    Parameters
    ----------
    table : Table
        Has a column for each field of the record; its primary key is the first field.
    record : type
        The dataclass.
    changing : iterable of str
        The fields that may differ between two versions of a record; only these are updated.
    forms : mapping
        How fields are written that are not plain numbers or texts.
    """

    def __init__(
        self, table: Table, record: type[Record], changing: Iterable[str] = (), **forms: Form
    ) -> None:
        self._record = record
        self._fields = tuple(field.name for field in fields(record))  # type: ignore[arg-type]
        self.key = self._fields[0]
        self._changing = tuple(changing)
        self._forms = forms
        key = table.c[self.key]
        self._select = select(*(table.c[name] for name in self._fields)).order_by(key)
        self._insert = insert(table)
        self._delete = delete(table).where(key == bindparam("of"))
        self._update = update(table).where(key == bindparam("of"))
        if self._changing:
            self._update = self._update.values({name: bindparam(f"new_{name}") for name in self._changing})

    def load(self, connection: Connection) -> Iterator[Record]:
        """Read all records, by key."""
        for row in connection.execute(self._select):
            values = dict(zip(self._fields, row, strict=True))
            for name, form in self._forms.items():
                values[name] = form.read(values[name])
            yield self._record(**values)

    def insert(self, connection: Connection, records: Iterable[Record]) -> None:
        """Add new records."""
        rows = [{name: self._write(record, name) for name in self._fields} for record in records]
        if rows:
            connection.execute(self._insert, rows)

    def update(self, connection: Connection, records: Iterable[Record]) -> None:
        """Write what may have changed in known records."""
        rows = [
            {"of": getattr(record, self.key)}
            | {f"new_{name}": self._write(record, name) for name in self._changing}
            for record in records
        ]
        if rows:
            connection.execute(self._update, rows)

    def save(
        self, connection: Connection, records: Mapping[int, Record], known: Mapping[int, Record]
    ) -> None:
        """Add the new ones among `records` and update those that are `known`."""
        self.insert(connection, [record for id, record in records.items() if id not in known])
        self.update(connection, [record for id, record in records.items() if id in known])

    def delete(self, connection: Connection, keys: Iterable[Any]) -> None:
        """Remove the records with these keys."""
        rows = [{"of": key} for key in keys]
        if rows:
            connection.execute(self._delete, rows)

    def _write(self, record: Record, name: str) -> Any:
        value = getattr(record, name)
        form = self._forms.get(name)
        return form.write(value) if form else value


class Environments:
    """Environments of jobs by content: all jobs from one shell share one copy, on disk and in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, Mapping[str, str]] = {}
        self._digests: dict[int, str] = {}  # by identity of the kept copy
        self._unsaved: set[str] = set()

    def keep(self, content: Mapping[str, str]) -> Mapping[str, str]:
        """Return the one copy of a content; a new one is written by the next `save`."""
        digest = hashlib.sha256(json.dumps(dict(content), sort_keys=True).encode()).hexdigest()
        if digest not in self._kept:
            self._remember(digest, dict(content))
            self._unsaved.add(digest)
        return self._kept[digest]

    def load(self, connection: Connection) -> None:
        """Read all environments."""
        for digest, content in connection.execute(
            select(tables.environments.c.digest, tables.environments.c.content)
        ):
            self._remember(digest, content)

    def save(self, connection: Connection) -> None:
        """Write what is not on disk yet; call `saved` once that is committed."""
        rows = [{"digest": digest, "content": self._kept[digest]} for digest in self._unsaved]
        if rows:
            connection.execute(insert(tables.environments), rows)

    def saved(self) -> None:
        """Follow a commit."""
        self._unsaved.clear()

    def unused(self, jobs: Iterable[Job]) -> set[str]:
        """Return the digests that none of the jobs names."""
        return self._kept.keys() - {self.digest(job.environment) for job in jobs}

    def forget(self, digests: Iterable[str]) -> None:
        """Drop copies that were removed from disk."""
        for digest in digests:
            del self._digests[id(self._kept.pop(digest))]
            self._unsaved.discard(digest)

    def digest(self, kept: Mapping[str, str]) -> str:
        """Return the name of a kept copy."""
        return self._digests[id(kept)]

    def __getitem__(self, digest: str) -> Mapping[str, str]:
        return self._kept[digest]

    def _remember(self, digest: str, content: Mapping[str, str]) -> None:
        self._kept[digest] = content
        self._digests[id(content)] = digest


def _write_request(value: Request) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _request(value: dict[str, Any]) -> Request:
    share = value["share"]
    return Request(
        **value | {"share": None if share is None else tuple(share), "gpu_types": tuple(value["gpu_types"])}
    )


def _write_placement(value: Placement) -> dict[str, Any]:
    return {
        "nodes": value.nodes,
        "gpus": [(share.uuid, share.mib) for share in value.gpus],
        "gpu_milli": value.gpu_milli,
        "partition": value.partition,
    }


def _placement(value: dict[str, Any]) -> Placement:
    gpus = tuple(GpuShare(uuid, mib) for uuid, mib in value["gpus"])
    return Placement(tuple(value["nodes"]), gpus, value["gpu_milli"], value["partition"])


REQUEST = Form(_write_request, _request)
PLACEMENT = Form(_write_placement, _placement)
TEXTS = Form(list, tuple)
NUMBERS = TEXTS
TASKS = Form(array_text, lambda text: parse_array(text)[0] if text else ())


def _state(states: type[JobState] | type[LeaseState] | type[SessionState]) -> Form:
    return Form(str, states)


def job_rows(environments: Environments) -> Rows[Job]:
    """Return the form of jobs, whose environments are kept by `environments`."""
    return Rows(
        tables.jobs,
        Job,
        changing=(
            "state",
            "held",
            "reason",
            "attempt",
            "not_before",
            "age_s",
            "waiting_since",
            "started",
            "ended",
            "exit_code",
            "signal",
            "diagnosis",
            "lease",
            "resumable",
            "stops",
            "in_vain",
            "saved_ms",
            "progress_ppm",
            "limit_s",
            "failures",
        ),
        state=_state(JobState),
        request=REQUEST,
        notify=TEXTS,
        after=NUMBERS,
        after_any=NUMBERS,
        environment=Form(environments.digest, environments.__getitem__),
    )


ARRAYS = Rows(tables.arrays, ArrayRecord, changing=("rest", "held", "cancelled"), tasks=TASKS, rest=TASKS)
SESSIONS = Rows(
    tables.sessions,
    SessionRecord,
    changing=("state", "started", "ended", "reason", "lease", "limit_s"),
    state=_state(SessionState),
    request=REQUEST,
)
LEASES = Rows(
    tables.leases,
    LeaseRecord,
    changing=("state", "start", "end", "freed", "resumable", "asked", "cause", "taker"),
    state=_state(LeaseState),
    request=REQUEST,
    placement=PLACEMENT,
)
PROMISES = Rows(tables.promises, Promise, placement=PLACEMENT)
CARDS = Rows(tables.cards, CardRecord)
