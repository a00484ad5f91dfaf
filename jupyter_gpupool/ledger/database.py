"""The open database and its image in memory: a change goes to disk first, then to memory.

Owns the one connection and every write. Knows no rule of jobs, leases or sessions: it stores what it is
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Executable, Table, bindparam, delete, insert, select

from jupyter_gpupool.ledger import tables
from jupyter_gpupool.ledger.errors import LedgerUnavailable
from jupyter_gpupool.ledger.granted import GrantChange, Granted
from jupyter_gpupool.ledger.migrate import upgrade
from jupyter_gpupool.ledger.place import Mount, WriterLock, refuse_network
from jupyter_gpupool.ledger.records import (
    ArrayRecord,
    CardRecord,
    Job,
    LeaseRecord,
    Move,
    Note,
    SessionRecord,
)
from jupyter_gpupool.ledger.rows import ARRAYS, CARDS, LEASES, PROMISES, SESSIONS, Environments, job_rows
from jupyter_gpupool.ledger.sqlite import connect, unavailable
from jupyter_gpupool.ledger.usage import Account, Key
from jupyter_gpupool.scheduler.model import Promise

Entry = TypeVar("Entry", Note, Move)

_REPLACE_USAGE = insert(tables.usage).prefix_with("OR REPLACE")
_REPLACE_SEQUENCE = insert(tables.sequences).prefix_with("OR REPLACE")
_DELETE_NOTES = delete(tables.notes).where(tables.notes.c.work == bindparam("of"))
_DELETE_MOVES = delete(tables.moves).where(tables.moves.c.work == bindparam("of"))
_DELETE_ENVIRONMENT = delete(tables.environments).where(tables.environments.c.digest == bindparam("of"))


@dataclass
class Change:
    """The records that one transaction adds or replaces; a promise of None is dropped."""

    jobs: dict[int, Job] = field(default_factory=dict)
    sessions: dict[int, SessionRecord] = field(default_factory=dict)
    leases: dict[int, LeaseRecord] = field(default_factory=dict)
    promises: dict[int, Promise | None] = field(default_factory=dict)
    accounts: dict[Key, Account] = field(default_factory=dict)
    cards: dict[str, CardRecord] | None = None
    notes: list[Note] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    grants: GrantChange = field(default_factory=GrantChange)
    arrays: dict[int, ArrayRecord] = field(default_factory=dict)


@dataclass
class Removal:
    """What one transaction drops for good, and the numbers that must not be given again."""

    jobs: list[int]
    sessions: list[int]
    leases: list[int]
    next: dict[str, int]
    arrays: list[int]
    grants: GrantChange


@dataclass
class Contents:
    """The image in memory of what is on disk."""

    jobs: dict[int, Job]
    sessions: dict[int, SessionRecord]
    leases: dict[int, LeaseRecord]
    promises: dict[int, Promise]
    accounts: dict[Key, Account]
    cards: dict[str, CardRecord]
    next: dict[str, int]
    grants: Granted
    arrays: dict[int, ArrayRecord]

    def apply(self, change: Change) -> None:
        """Follow a change that was committed."""
        self.jobs |= change.jobs
        self.arrays |= change.arrays
        self.sessions |= change.sessions
        self.leases |= change.leases
        self.accounts |= change.accounts
        works = (*change.jobs, *change.sessions, *change.arrays, 0)
        self.next["work"] = max(self.next["work"], *(id + 1 for id in works))
        self.next["lease"] = max(self.next["lease"], *(id + 1 for id in (*change.leases, 0)))
        grants = (*change.grants.boosts, *change.grants.reservations, 0)
        self.next["grant"] = max(self.next["grant"], *(id + 1 for id in grants))
        self.next["request"] = max(self.next["request"], *(id + 1 for id in (*change.grants.requests, 0)))
        for work, promise in change.promises.items():
            if promise is None:
                self.promises.pop(work, None)
            else:
                self.promises[work] = promise
        if change.cards is not None:
            self.cards.clear()
            self.cards |= change.cards
        self.grants.apply(change.grants)

    def remove(self, removal: Removal) -> None:
        """Follow a removal that was committed."""
        for records, ids in (
            (self.jobs, removal.jobs),
            (self.sessions, removal.sessions),
            (self.leases, removal.leases),
            (self.arrays, removal.arrays),
        ):
            for id in ids:
                del records[id]
        self.grants.apply(removal.grants)


class Database:
    """The one writer's hold on the ledger file.

    Parameters
    ----------
    path : Path
        The ledger file; it and its folder (0700) are created if absent.
    now : int
        Seconds since the epoch, for the lock file.
    mounts : sequence of Mount, optional
        The mount table, by default the system's.

    Raises
    ------
    LedgerError
        On a network file system, with a second writer, with a ledger of a newer version.
    LedgerUnavailable
        If the place is read-only or full.
    """

    def __init__(self, path: Path, now: int, mounts: Sequence[Mount] | None = None) -> None:
        self._path = path
        _make_folder(path.parent)
        refuse_network(path.parent.resolve(), mounts)
        with ExitStack() as undo:
            lock = WriterLock(path, now)
            undo.callback(lock.release)
            self._connection = connect(path)
            undo.callback(self._connection.close)
            self._environments = Environments()
            self._jobs = job_rows(self._environments)
            with self._transaction():
                upgrade(self._connection)
                self.contents = self._load()
            self._close = undo.pop_all().close

    def close(self) -> None:
        """Close the file and let another writer in."""
        self._close()

    def keep_environment(self, content: Mapping[str, str]) -> Mapping[str, str]:
        """Return the one copy of an environment, to be used in a job's record."""
        return self._environments.keep(content)

    def save(self, change: Change) -> None:
        """Commit a change, then apply it to `contents`.

        Raises
        ------
        LedgerUnavailable
            If it cannot be committed; nothing changed then.
        """
        with self._transaction():
            self._environments.save(self._connection)
            self._jobs.save(self._connection, change.jobs, self.contents.jobs)
            SESSIONS.save(self._connection, change.sessions, self.contents.sessions)
            LEASES.save(self._connection, change.leases, self.contents.leases)
            ARRAYS.save(self._connection, change.arrays, self.contents.arrays)
            self._save_promises(change.promises)
            if change.cards is not None:
                CARDS.delete(self._connection, self.contents.cards)
                CARDS.insert(self._connection, change.cards.values())
            self._add(
                _REPLACE_USAGE,
                [{"group": group, "user": user, **vars(a)} for (group, user), a in change.accounts.items()],
            )
            self._add(insert(tables.notes), map(vars, change.notes))
            self._add(insert(tables.moves), map(vars, change.moves))
            self.contents.grants.save(self._connection, change.grants)
        self._environments.saved()
        self.contents.apply(change)

    def remove(self, removal: Removal) -> None:
        """Commit a removal, then apply it to `contents`; errors as in `save`."""
        gone = set(removal.jobs)
        unused = self._environments.unused(job for id, job in self.contents.jobs.items() if id not in gone)
        works = [{"of": id} for id in removal.jobs + removal.sessions]
        with self._transaction():
            self._add(_REPLACE_SEQUENCE, [{"name": n, "next": v} for n, v in removal.next.items()])
            self._jobs.delete(self._connection, removal.jobs)
            SESSIONS.delete(self._connection, removal.sessions)
            LEASES.delete(self._connection, removal.leases)
            ARRAYS.delete(self._connection, removal.arrays)
            self.contents.grants.save(self._connection, removal.grants)
            self._add(_DELETE_NOTES, works)
            self._add(_DELETE_MOVES, works)
            self._add(_DELETE_ENVIRONMENT, [{"of": digest} for digest in unused])
        self._environments.forget(unused)
        self.contents.remove(removal)

    def notes(self, work: int) -> list[Note]:
        """Return what was noted about a job or session, oldest first."""
        return self._read(Note, tables.notes, work)

    def moves(self, work: int) -> list[Move]:
        """Return how its promise moved, oldest first."""
        return self._read(Move, tables.moves, work)

    def transaction(self) -> AbstractContextManager[Connection]:
        """Return one transaction, for what has no image in memory; errors as in `save`."""
        return self._transaction()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Return a transaction of a connection of its own, to read in any thread; errors as in `save`."""
        with unavailable(self._path), closing(connect(self._path)) as connection, connection.begin():
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with unavailable(self._path), self._connection.begin():
            yield self._connection

    def _load(self) -> Contents:
        self._environments.load(self._connection)
        jobs = {job.id: job for job in self._jobs.load(self._connection)}
        sessions = {session.id: session for session in SESSIONS.load(self._connection)}
        leases = {lease.id: lease for lease in LEASES.load(self._connection)}
        arrays = {array.id: array for array in ARRAYS.load(self._connection)}
        accounts = {
            (group, user): Account(nano, at)
            for group, user, nano, at in self._connection.execute(select(tables.usage))
        }
        grants = Granted()
        grants.load(self._connection)
        given = {row.name: row.next for row in self._connection.execute(select(tables.sequences))}
        return Contents(
            jobs=jobs,
            sessions=sessions,
            leases=leases,
            promises={promise.work: promise for promise in PROMISES.load(self._connection)},
            accounts=accounts,
            cards={card.uuid: card for card in CARDS.load(self._connection)},
            next={
                "work": max(given.get("work", 1), *(id + 1 for id in (0, *jobs, *sessions, *arrays))),
                "lease": max(given.get("lease", 1), *(id + 1 for id in (0, *leases))),
                "grant": max(
                    given.get("grant", 1), *(id + 1 for id in (0, *grants.boosts, *grants.reservations))
                ),
                "request": max(given.get("request", 1), *(id + 1 for id in (0, *grants.requests))),
            },
            grants=grants,
            arrays=arrays,
        )

    def _save_promises(self, promises: Mapping[int, Promise | None]) -> None:
        PROMISES.delete(self._connection, promises.keys() & self.contents.promises.keys())
        PROMISES.insert(self._connection, [promise for promise in promises.values() if promise is not None])

    def _add(self, statement: Executable, rows: Iterable[Mapping[str, Any]]) -> None:
        parameters = list(rows)
        if parameters:
            self._connection.execute(statement, parameters)

    def _read(self, record: type[Entry], table: Table, work: int) -> list[Entry]:
        columns = [table.c[field.name] for field in fields(record)]
        query = select(*columns).where(table.c.work == work).order_by(table.c.id)
        with self._transaction():
            return [record(*row) for row in self._connection.execute(query)]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerUnavailable(f"The ledger's folder {folder} cannot be made: {error.strerror}.") from None
