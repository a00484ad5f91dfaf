"""Leases for a Hub's notebook servers.

Owns: a server's session from its ticket to its end. A ticket lapses when nobody asks about it any more; a
lease lives while the engine has the attempt ``"<session>/1"``, or until it is clear that nobody will start
one; a server that the Hub has forgotten is ended. Never: starting a process: the Hub's spawner does that.

"Unknown" ends nothing: what engine or Hub cannot say now is asked again at the next look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NoReturn
from weakref import WeakValueDictionary

from jupyter_gpupool.engines.base import Ended, Engine, EngineError, Started
from jupyter_gpupool.ledger import LedgerUnavailable
from jupyter_gpupool.ledger.records import LeaseRecord, NewSession, SessionRecord, SessionState
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.news import News
from jupyter_gpupool.service.release import Releases

log = logging.getLogger("gpupool")

LOOK_S = 5.0
GRACE_S = 10
"""How long a server may take to end when it is asked to."""

OVER = "Its time is over."
REBOOT = "The machine was restarted."
UNUSED = "No server was started on it."
UNASKED = "Nobody asked about it any more."
FORGOTTEN = "The Hub does not know this server any more."

Known = Mapping[str, Set[str]]
"""The names of each user's servers."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long, in seconds, what nobody asks about is kept.

    `ticket`: a place in the queue; `claim`: a lease on which no server has started; `orphan`: a server that
    the Hub does not know; `end`: the end of a server, for its spawner to read.
    """

    ticket: float = 600
    claim: float = 60
    orphan: float = 60
    end: float = 600


class Servers:
    """All sessions of servers that wait or hold a lease.

    Parameters
    ----------
    ask_hub
        Which servers the Hub has, running or starting; None = it does not say.
    clock
        Seconds that never go back; silence is counted from the making of this object.
    """

    def __init__(
        self,
        controller: Controller,
        engine: Engine,
        releases: Releases,
        news: News,
        *,
        ask_hub: Callable[[], Awaitable[Known | None]] | None = None,
        patience: Patience = Patience(),
        clock: Callable[[], float] = time.monotonic,
    ):
        self._controller = controller
        self._ledger = controller.ledger
        self._engine = engine
        self._releases = releases
        self._news = news
        self._ask_hub = ask_hub
        self._patience = patience
        self._clock = clock
        self._opened = clock()
        self._asked: dict[int, float] = {}
        self._missed: dict[int, float] = {}
        self._hub_asked = self._opened
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._watch: asyncio.Task[NoReturn] | None = None

    # -- asking ----------------------------------------------------------------------------------

    def turn(self, server: str) -> asyncio.Lock:
        """Return the lock under which one request at a time decides about a server."""
        return self._turns.setdefault(server, asyncio.Lock())

    def present(self, server: str) -> SessionRecord | None:
        """Return the newest session of a server, if it waits or holds a lease."""
        sessions = self._ledger.sessions_of(server)
        return sessions[-1] if sessions and sessions[-1].state.live else None

    async def reusable(self, session: SessionRecord, new: NewSession) -> bool:
        """Whether a request gets what an earlier one, of which nobody has made use yet, has got already.

        Raises
        ------
        EngineError
            The engine cannot say whether a server runs on it.
        """
        if (session.group, session.request) != (new.group, new.request):
            return False
        return session.state is SessionState.WAITING or await self._attempt(session) is None

    def add(self, new: NewSession) -> SessionRecord:
        """Queue a server, which its spawner has just asked for; see `Controller.add_session`."""
        session = self._controller.add_session(new)
        self.asked(session)
        return session

    def asked(self, session: SessionRecord) -> None:
        """Somebody still wants this."""
        self._asked[session.id] = self._clock()

    def held(self, lease: LeaseRecord) -> None:
        """A ticket became a lease: from now on its server may be started."""
        session = self._ledger.sessions[lease.work]
        self.asked(session)
        self._news.session(session)

    # -- ending ----------------------------------------------------------------------------------

    async def end(self, session: SessionRecord, reason: str) -> None:
        """End a server and its session; the lease is free when no process is left and the memory is.

        The engine is asked before the ledger is written: a service that dies in between has lost nothing.

        Raises
        ------
        EngineError
            The engine cannot be reached; nothing has changed.
        LedgerUnavailable
            That cannot be written down now.
        """
        gone = True
        if self._ledger.sessions[session.id].state is SessionState.HELD:
            gone = await self._gone(session)
            if not gone:
                await self._engine.stop(key_of(session), cause="cancel", grace_s=GRACE_S)
        present = self._ledger.sessions[session.id]
        if present.state.live:
            self._record_end(present, reason, gone)

    def ended(self, report: Ended) -> None:
        """Record an end that the engine reports; a report may come twice, and late."""
        session = self._of(report.key)
        try:
            if session is not None and session.state is SessionState.HELD:
                self._record_end(session, _why(report), report.tree_gone)
        except LedgerUnavailable as error:
            self._controller.put_off(error, self.ended, report)
            return
        if report.tree_gone:
            self._releases.tree_gone(report.key)

    def _record_end(self, session: SessionRecord, reason: str, gone: bool) -> None:
        lease = None if session.lease is None else self._ledger.leases[session.lease]
        free = lease is None or (gone and self._releases.memory_is_free(lease))
        ended = self._ledger.end_session(session.id, reason, self._controller.now, free=free)
        if gone and not free:
            self._releases.tree_gone(key_of(session))
        self._asked.pop(session.id, None)
        self._missed.pop(session.id, None)
        self._controller.changed([session.id])
        self._news.session(ended)

    # -- boot ------------------------------------------------------------------------------------

    def owns(self, key: str) -> bool:
        """Whether an attempt is a server's."""
        return self._of(key) is not None

    def adopt(self, attempts: Iterable[Started | Ended]) -> None:
        """Make ledger and engine agree after a restart of the service, or of the machine."""
        known = {attempt.key: attempt for attempt in attempts}
        for report in known.values():
            if isinstance(report, Ended):
                self.ended(report)
        for session in self._live():
            lease = None if session.lease is None else self._ledger.leases[session.lease]
            if lease and lease.boot_id != self._ledger.boot_id and key_of(session) not in known:
                self._record_end(session, REBOOT, gone=True)

    def open(self) -> None:
        """Begin to look after them."""
        self._watch = asyncio.create_task(self._look_forever())

    async def close(self) -> None:
        """Look no more; servers go on."""
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _look_forever(self) -> NoReturn:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except (EngineError, LedgerUnavailable) as error:
                log.warning("Servers are looked after again soon: %s", error)
            except Exception:
                log.exception("A look at the servers failed; the next one comes soon")

    # -- looking ---------------------------------------------------------------------------------

    async def look(self) -> None:
        """End what nobody wants any more, and stop what runs without a lease.

        Raises
        ------
        EngineError
            The engine cannot say what runs; nothing has changed.
        LedgerUnavailable
            An end cannot be written down now.
        """
        attempts = {attempt.key: attempt for attempt in await self._engine.list()}
        for id in [session.id for session in self._sessions()]:
            session = self._ledger.sessions[id]  # an end before this one may have made room for it
            attempt = attempts.get(key_of(session))
            if isinstance(attempt, Ended):
                self.ended(attempt)
            elif session.state is SessionState.RELEASING:
                await self._release_lost(session, attempt)
            elif attempt is None and session.state.live and (reason := self._lapsed(session)):
                await self._let_go(session, reason)
        for key, report in attempts.items():
            owner = self._of(key)
            if owner is not None and owner.state is SessionState.ENDED:
                await self._clear(report)
        await self._compare_with_hub(attempts.keys())

    def _lapsed(self, session: SessionRecord) -> str | None:
        """Say why a session is over that nobody has ended, and that the engine does not run.

        The engine bounds the time of what it runs by a clock that is never set.
        """
        if session.lease is None:
            return UNASKED if self._silent(session) > self._patience.ticket else None
        return OVER if self._ledger.leases[session.lease].end < self._controller.now else None

    def _silent(self, session: SessionRecord) -> float:
        """Return for how long nobody has asked about a session."""
        return self._clock() - self._asked.get(session.id, self._opened)

    async def _compare_with_hub(self, running: Set[str]) -> None:
        """End what the Hub does not know: leases on which nothing runs, and servers that it has forgotten."""
        unused = [
            session
            for session in self._sessions()
            if session.state is SessionState.HELD
            and key_of(session) not in running
            and self._silent(session) > self._patience.claim
        ]
        due = self._ask_hub is not None and self._clock() - self._hub_asked >= self._patience.orphan
        if not (unused or due):
            return
        known = await self._ask_hub() if self._ask_hub else {}
        for session in unused:
            await self._drop_unused(session, known)
        if due:
            self._hub_asked = self._clock()
            await self._end_orphans(known, running)

    async def _drop_unused(self, session: SessionRecord, known: Known | None) -> None:
        """End a session of which no server runs, unless one may: elsewhere, or unknown to the engine.

        While the Hub is silent, a lease is kept as long as a place in the queue.
        """
        if known is None and self._silent(session) <= self._patience.ticket:
            return
        if known is not None and _is_among(session, known):
            self.asked(session)
        elif await self._engine.left(key_of(session)):
            log.warning("Server %s runs, but the engine does not know it; it keeps its lease", session.id)
        else:
            await self._let_go(session, UNUSED)

    async def _let_go(self, session: SessionRecord, reason: str) -> None:
        """End a session that nobody else has ended."""
        log.info("Lease %s of %s is over: %s", session.id, session.owner, reason)
        await self.end(session, reason)

    async def _release_lost(self, session: SessionRecord, attempt: Started | None) -> None:
        """Free the lease of a server that the engine has lost, once none of its processes is left."""
        if attempt is None and not await self._engine.left(key_of(session)):
            self._releases.tree_gone(key_of(session))

    async def _clear(self, attempt: Started | Ended) -> None:
        """Stop a server that was started when its lease was gone; forget one that ended long ago."""
        if isinstance(attempt, Started):
            log.warning("Server %s runs without a lease; it is stopped", attempt.key)
            await self._engine.stop(attempt.key, cause="cancel", grace_s=0)
        elif attempt.tree_gone and self._controller.now - attempt.ended > self._patience.end:
            await self._engine.forget(attempt.key)

    async def _end_orphans(self, known: Known | None, live: Set[str]) -> None:
        """End the servers that the Hub has not known in two looks."""
        if known is None:
            return
        now = self._clock()
        for session in self._live():
            if key_of(session) not in live or _is_among(session, known):
                self._missed.pop(session.id, None)
            elif now - self._missed.setdefault(session.id, now) >= self._patience.orphan:
                await self._let_go(session, FORGOTTEN)

    # -- inside ----------------------------------------------------------------------------------

    def _sessions(self) -> list[SessionRecord]:
        sessions = self._ledger.sessions.values()
        over = SessionState.ENDED
        return [session for session in sessions if session.server is not None and session.state is not over]

    def _live(self) -> list[SessionRecord]:
        return [session for session in self._sessions() if session.state.live]

    def _of(self, key: str) -> SessionRecord | None:
        session = self._ledger.sessions.get(int(key.partition("/")[0]))
        return session if session is not None and session.server is not None else None

    async def _gone(self, session: SessionRecord) -> bool:
        """Whether no process of a server is left, or there has been none."""
        attempt = await self._attempt(session)
        if isinstance(attempt, Started):
            return False
        return attempt.tree_gone if attempt else not await self._engine.left(key_of(session))

    async def _attempt(self, session: SessionRecord) -> Started | Ended | None:
        key = key_of(session)
        return next((attempt for attempt in await self._engine.list() if attempt.key == key), None)


def key_of(session: SessionRecord) -> str:
    """Return the name of the one attempt of a session's server."""
    return f"{session.id}/1"


def _is_among(session: SessionRecord, known: Known) -> bool:
    user, _, name = (session.server or "").partition("/")
    return name in known.get(user, ())


def _why(report: Ended) -> str:
    """Say how a server ended."""
    if report.oom:
        return "The server was ended because it needed more memory than its slice has."
    match report.cause:
        case "limit":
            return OVER
        case "reboot":
            return REBOOT
        case "start":
            return report.message
        case "lost":
            return "The server was killed together with the process that watched it."
        case "cancel" | "stop":
            return "The server was stopped."
    how = f"by signal {report.signal}" if report.signal else f"with exit code {report.exit_code}"
    return f"The server ended {how}."
