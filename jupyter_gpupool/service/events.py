"""What has just happened, for whoever listens.

Owns: the ring of recent events and the server-sent form of one. Listeners read the ring from where
they left off, so a slow one costs nothing and a returning one (`Last-Event-ID`) misses nothing that
is still in the ring. Never: the truth; that is the ledger.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

RING = 2000
HEARTBEAT_S = 15.0
NAMES = ("user", "name")
"""Which facts of an event say whose it is."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `owner` None = anybody may know."""

    id: int
    kind: str
    owner: str | None
    data: Mapping[str, Any]

    def seen_by(self, user: str, *, names: bool) -> Event:
        """Return the event as `user` may see it, who sees the names of others only with `names`."""
        whose = self.data.get("user")
        if names or whose in (None, user):
            return self
        return replace(self, data={key: None if key in NAMES else value for key, value in self.data.items()})

    def encoded(self) -> bytes:
        """Return the event as one server-sent message."""
        body = json.dumps(self.data, separators=(",", ":"))
        return f"id: {self.id}\nevent: {self.kind}\ndata: {body}\n\n".encode()


class Bus:
    """The ring of events.

    Parameters
    ----------
    first
        The first id. Ids grow for ever, across restarts too, when it is the time in milliseconds.

    Attributes
    ----------
    closed
        Whether the service is stopping.
    listeners
        How many read the ring now.
    """

    def __init__(self, first: int):
        self._next = first
        self._ring: deque[Event] = deque(maxlen=RING)
        self._news = asyncio.Event()
        self.closed = False
        self.listeners = 0

    @property
    def last(self) -> int:
        """The id of the newest event."""
        return self._next - 1

    def publish(self, kind: str, data: Mapping[str, Any], owner: str | None = None) -> None:
        """Tell everybody who listens (or only `owner`)."""
        self._ring.append(Event(self._next, kind, owner, data))
        self._next += 1
        self._news.set()

    def after(self, last: int, user: str, *, names: bool = True) -> list[Event]:
        """Return what `user` may know of the events after `last`; with `names`, also whose they are.

        When some of them have left the ring, a ``reset`` comes first: the listener must read the
        state anew.
        """
        oldest = self._ring[0].id if self._ring else self._next
        missed = [Event(max(last, 0), "reset", None, {})] if last < oldest - 1 or last >= self._next else []
        start = 0 if missed else last + 1 - oldest
        recent = list(self._ring)[start:]
        seen = (event for event in recent if event.owner in (None, user))
        return missed + [event.seen_by(user, names=names) for event in seen]

    async def news(self, last: int, timeout: float) -> None:
        """Wait until there is an event after `last`, the bus closes, or `timeout` seconds have passed."""
        if self.closed or self.last > last:
            return
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), timeout)
        except TimeoutError:
            pass

    def close(self) -> None:
        """Let every listener go."""
        self.closed = True
        self._news.set()
