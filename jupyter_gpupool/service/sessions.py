"""Leases for interactive work: kernels, and commands run in the foreground (a Hub's servers: see `servers`).

Owns: a session's life with the process that holds it, named by the kernel at connect (SO_PEERCRED), watched
by pidfd, found again at boot by its pid and start time; and its bounded time. Never: ending a session for
others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress

from jupyter_gpupool.devices.strangers import Holder, holder_of
from jupyter_gpupool.engines.local.proctree import starttime
from jupyter_gpupool.ledger import LedgerUnavailable
from jupyter_gpupool.ledger.records import LeaseRecord, NewSession, SessionRecord
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.news import News
from jupyter_gpupool.service.release import Releases

log = logging.getLogger("gpupool")


class Sessions:
    """All sessions that wait or hold a lease."""

    def __init__(self, controller: Controller, releases: Releases, news: News):
        self._controller = controller
        self._ledger = controller.ledger
        self._releases = releases
        self._news = news
        self._watched: dict[int, int] = {}
        self._expiries: dict[int, asyncio.TimerHandle] = {}

    def add(self, new: NewSession) -> SessionRecord:
        """Queue a session, and watch its process; see `Controller.add_session`."""
        session = self._controller.add_session(new)
        self._watch(session)
        return session

    def held(self, lease: LeaseRecord) -> None:
        """A session has its lease: bound its time."""
        self._bound(lease)
        self._news.session(self._ledger.sessions[lease.work])

    def longer(self, lease: LeaseRecord) -> None:
        """A session has more time, or less: bound it anew."""
        if expiry := self._expiries.pop(lease.work, None):
            expiry.cancel()
        self._bound(lease)

    def end(self, session: SessionRecord, reason: str) -> None:
        """End a session. Its lease is free when its processes have left the card; the holder may live on.

        Raises
        ------
        LedgerUnavailable
            That cannot be written down now; nothing has changed.
        """
        lease = self._ledger.leases[session.lease] if session.lease is not None else None
        holder = _holder(session, lease)
        free = lease is None or self._releases.memory_is_free(lease, holder)
        ended = self._ledger.end_session(session.id, reason, self._controller.now, free=free)
        self._forget(session.id)
        if lease is not None and not free:
            self._releases.given_back(lease.id, holder)
        self._controller.changed([session.id])
        self._news.session(ended)

    def stop(self, session: SessionRecord, reason: str) -> None:
        """End a session, and ask its process to end; errors as in `end`."""
        self._ask_to_end(session.id)
        self.end(session, reason)

    def adopt(self) -> None:
        """At boot, watch the holders that live; end the sessions whose holder is gone."""
        for session in list(self._ledger.sessions.values()):
            if session.server is not None or not session.state.live:
                continue
            same_boot = session.boot_id == self._ledger.boot_id
            if not (same_boot and _holds(session)) or not self._watch(session):
                self.end(session, "Its process ended while the service was down.")
            elif session.lease is not None:
                self._bound(self._ledger.leases[session.lease])

    def close(self) -> None:
        """Watch no more; the next service does."""
        for session in list(self._watched):
            self._forget(session)

    def _watch(self, session: SessionRecord) -> bool:
        """Learn of the end of the session's process; return whether it lives."""
        try:
            descriptor = os.pidfd_open(session.pid or 0)
        except OSError:
            asyncio.get_running_loop().call_soon(self._gone, session.id)
            return False
        self._watched[session.id] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._gone, session.id)
        return True

    def _bound(self, lease: LeaseRecord) -> None:
        delay = max(0, lease.end - self._controller.now)
        loop = asyncio.get_running_loop()
        self._expiries[lease.work] = loop.call_later(delay, self._expired, lease.work)

    def _expired(self, session_id: int) -> None:
        if self._controller.policy.enforce == "stop":
            self._ask_to_end(session_id)
        self._try_end(session_id, "Its time is over.")

    def _ask_to_end(self, session_id: int) -> None:
        if session_id in self._watched:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watched[session_id], signal.SIGTERM)

    def _gone(self, session_id: int) -> None:
        self._unwatch(session_id)
        self._try_end(session_id, "Its process has ended.")

    def _try_end(self, session_id: int, reason: str) -> None:
        session = self._ledger.sessions.get(session_id)
        if session is None or not session.state.live:
            return
        try:
            self.end(session, reason)
        except LedgerUnavailable as error:
            self._controller.put_off(error, self._try_end, session_id, reason)

    def _forget(self, session_id: int) -> None:
        self._unwatch(session_id)
        if expiry := self._expiries.pop(session_id, None):
            expiry.cancel()

    def _unwatch(self, session_id: int) -> None:
        descriptor = self._watched.pop(session_id, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)


def owner_of(pid: int) -> int | None:
    """Return the uid a process runs as; None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return None


def _holds(session: SessionRecord) -> bool:
    """Whether the session's own process lives, and no other has got its pid."""
    return session.pid is not None and starttime(session.pid) == session.starttime


def _holder(session: SessionRecord, lease: LeaseRecord | None) -> Holder | None:
    if lease is None or session.pid is None or not _holds(session):
        return None
    try:
        return holder_of(lease.id, session.pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
