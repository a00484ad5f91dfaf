"""Messages that are still to be delivered, and the memory of those that were.

Owns: the table `notices`: each message is written down once by its key for each channel, and waits until it
was delivered or given up, so that a restart neither loses nor doubles it. Never: delivering one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from jupyter_gpupool.ledger import tables
from jupyter_gpupool.ledger.database import Database

Channel: TypeAlias = Literal["mail", "webhook"]
MOST_WAITING = 1000


@dataclass(frozen=True)
class Message:
    """What to tell whom; `user` None = the administrators. Of equal `key` there is one."""

    key: str
    user: str | None
    subject: str
    text: str


@dataclass(frozen=True)
class Notice:
    """A message on its way through one channel: tried so often, and not before `due` again."""

    id: int
    key: str
    channel: Channel
    user: str | None
    subject: str
    text: str
    at: int
    tries: int
    due: int


_NOTICE = [tables.notices.c[name] for name in Notice.__dataclass_fields__]
_WAITING = tables.notices.c.state == "waiting"


class Outbox:
    """The messages of one ledger; errors as in `Ledger`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, messages: Iterable[Message], channels: Iterable[Channel], now: int) -> bool:
        """Take messages for each channel that have not been taken yet; False = too many wait already."""
        rows = [
            {"channel": channel, "at": now, "state": "waiting", "tries": 0, "due": now} | vars(message)
            for message in messages
            for channel in channels
        ]
        if not rows:
            return True
        with self._database.transaction() as connection:
            waiting = connection.execute(
                select(func.count()).select_from(tables.notices).where(_WAITING)
            ).scalar()
            if (waiting or 0) + len(rows) > MOST_WAITING:
                return False
            connection.execute(insert(tables.notices).on_conflict_do_nothing(), rows)
        return True

    def due(self, now: int) -> list[Notice]:
        """Return what is to be delivered now, oldest first."""
        query = select(*_NOTICE).where(_WAITING, tables.notices.c.due <= now).order_by(tables.notices.c.id)
        with self._database.transaction() as connection:
            return [Notice(*row) for row in connection.execute(query)]

    def next_due(self) -> int | None:
        """Return when something is to be delivered next."""
        query = select(func.min(tables.notices.c.due)).where(_WAITING)
        with self._database.transaction() as connection:
            found: int | None = connection.execute(query).scalar()
            return found

    def delivered(self, ids: Iterable[int]) -> None:
        """Record that messages arrived."""
        self._set(ids, state="delivered")

    def given_up(self, ids: Iterable[int]) -> None:
        """Record that messages can never arrive."""
        self._set(ids, state="given_up")

    def failed(self, ids: Iterable[int], due: int) -> None:
        """Record that delivering failed, and when it is tried again."""
        self._set(ids, tries=tables.notices.c.tries + 1, due=due)

    def forget(self, before: int) -> None:
        """Drop what was taken before a moment and waits no more."""
        query = delete(tables.notices).where(
            tables.notices.c.state != "waiting", tables.notices.c.at < before
        )
        with self._database.transaction() as connection:
            connection.execute(query)

    def _set(self, ids: Iterable[int], **values: object) -> None:
        found = list(ids)
        if not found:
            return
        with self._database.transaction() as connection:
            connection.execute(update(tables.notices).where(tables.notices.c.id.in_(found)).values(**values))
