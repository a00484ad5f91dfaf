"""What holds for sessions and jobs that do nothing, and for sessions whose time is nearly over.

Owns: since when a session has been idle, whom that is said to, and what is done then: as the policy's
`sessions` say. Idle = no cell runs and no device is in use; what is not known is never idle. Never: a session
that works, a wall clock.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from jupyter_gpupool.client.text import duration
from jupyter_gpupool.ledger.outbox import Message
from jupyter_gpupool.ledger.records import Job, JobState, LeaseRecord, SessionRecord, SessionState
from jupyter_gpupool.ledger.use import Key, Use
from jupyter_gpupool.policy.model import OTHERWISE, IdleAction, Policy
from jupyter_gpupool.service import occasions
from jupyter_gpupool.service.activity import Activity
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.meter import Meter
from jupyter_gpupool.service.news import News

log = logging.getLogger("gpupool")

LOOK_S = 60.0
WARN_S = 900
"""So long before its end a session's owner hears of it; of a short one, when a quarter is left."""
WARN_AT_LEAST_S = 75
"""Long enough for a look to come in between."""
LAST_CHANCE_S = 600
"""So long after the warning an idle session is released or stopped."""
UNUSED_CELL_S = 4 * 3600
UNUSED_JOB_S = 3600
LONGEST_S = 300

End = Callable[[SessionRecord, str], Awaitable[None]]


class Rules:
    """The rules of one pool.

    Parameters
    ----------
    release, stop
        End a session: its lease; its lease and its processes.
    tell
        Sends a message.
    """

    def __init__(
        self,
        controller: Controller,
        meter: Meter,
        activity: Activity,
        news: News,
        tell: Callable[[Message], None],
        *,
        release: End,
        stop: End,
    ) -> None:
        self._controller = controller
        self._ledger = controller.ledger
        self._meter = meter
        self._activity = activity
        self._news = news
        self._tell = tell
        self._release = release
        self._stop = stop
        self._looked: int | None = None
        self._idle: dict[int, int] = {}
        self._warned: dict[int, tuple[int, bool]] = {}
        self._busy: dict[int, int] = {}
        self._said: set[tuple[int, str]] = set()

    # -- looking -------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Measure, count, warn, and do what the policy says.

        Raises
        ------
        LedgerUnavailable
            Something cannot be written down now.
        """
        now, policy = self._controller.now, self._controller.policy
        await self._meter.look(now, policy)
        passed = 0 if self._looked is None else min(LONGEST_S, max(0, now - self._looked))
        self._looked = now
        sessions = [found for found in self._ledger.sessions.values() if found.state is SessionState.HELD]
        self._forget({session.id for session in sessions})
        counted: dict[Key, Use] = {}
        for session in sessions:
            if session.lease is None:
                continue
            lease = self._ledger.leases[session.lease]
            self._warn_of_end(session, lease, now)
            self._unused_cell(session, lease, now)
            if part := self._count_idle(session, lease, policy, now, passed):
                key = (session.group, session.owner, "session")
                counted[key] = counted.get(key, Use()) + part
        if counted:
            self._ledger.days.measured(policy.zone, now, counted, {})
        for lease_view in self._ledger.held():
            job = self._ledger.jobs.get(lease_view.work)
            if job is not None and job.state is JobState.RUNNING:
                self._unused_job(job, lease_view.id, now)
        for session in sessions:
            await self._act(session, policy, now)

    def _forget(self, held: set[int]) -> None:
        for known in (self._idle, self._warned, self._busy):
            for id in known.keys() - held:
                del known[id]
        jobs = self._ledger.jobs
        self._said = {
            (id, what) for id, what in self._said if id in held or (id in jobs and jobs[id].state.live)
        }

    def _warn_of_end(self, session: SessionRecord, lease: LeaseRecord, now: int) -> None:
        left = lease.end - now
        if left > min(WARN_S, max(WARN_AT_LEAST_S, (lease.end - lease.start) // 4)):
            self._said.discard((session.id, "end"))
            return
        if left > 0:
            text = f"Its time ends in {duration(left, parts=1)}: save what you need."
            self._say(
                session,
                "end",
                f"Session {session.id} ends soon",
                text,
                key=f"ends {lease.end}",
                ends=lease.end,
            )

    def _count_idle(
        self, session: SessionRecord, lease: LeaseRecord, policy: Policy, now: int, passed: int
    ) -> Use | None:
        """Follow whether a session does something; return what of its idleness counts for the day."""
        if not self._is_idle(session, lease, now):
            self._idle.pop(session.id, None)
            self._warned.pop(session.id, None)
            return None
        since = self._idle.setdefault(session.id, now)
        before, after = now - passed - since, now - since
        crossed = before < policy.sessions.idle_after <= after
        return Use(idle_s=min(passed, after), idled=int(crossed)) if after else None

    def _is_idle(self, session: SessionRecord, lease: LeaseRecord, now: int) -> bool:
        if self._activity.busy(session, now) is not False:
            return False
        if self._controller.pool.simulated or not lease.placement.gpus:
            return True
        return self._meter.in_use(lease.id) is False

    async def _act(self, session: SessionRecord, policy: Policy, now: int) -> None:
        """Warn the owner of an idle session; release or stop it when it has stayed idle after that.

        Who was warned of nothing worse is warned again when the calendar says that sessions end.
        """
        since = self._idle.get(session.id)
        if since is None or now - since < policy.sessions.idle_after:
            return
        action = self.action(policy, now)
        idle, final = now - since, action in ("release", "stop")
        warned, knows = self._warned.get(session.id, (now, False))
        if session.id not in self._warned or (final and not knows):
            self._warned[session.id] = (now, final)
            ends = now + LAST_CHANCE_S
            text = f"It has done nothing for {duration(idle, parts=1)}. {_what_then(action, now, ends)}"
            key, fate = (f"idle {since} ends {ends}", ends) if final else (f"idle {since}", None)
            self._say(session, "idle", f"Session {session.id} is idle", text, key=key, ends=fate, again=True)
        elif not final:
            self._warned[session.id] = (warned, False)
        elif now >= warned + LAST_CHANCE_S:
            because = f"It did nothing for {duration(idle)}."
            log.info("Session %s of %s is over: %s", session.id, session.owner, because)
            await (self._stop if action == "stop" else self._release)(session, because)
            subject = f"Session {session.id} was ended"
            self._tell(occasions.of_session(session, f"idle {since} over", subject, because))

    def action(self, policy: Policy, now: int) -> IdleAction:
        """Return what is done with idle sessions now: as the first calendar says in whose window this is."""
        windows = self._controller.frame.windows
        for calendar, action in policy.sessions.idle_action.items():
            if any(start <= now < end for start, end in windows.get(calendar, ())):
                return action
        return policy.sessions.idle_action.get(OTHERWISE, "warn")

    def _unused_cell(self, session: SessionRecord, lease: LeaseRecord, now: int) -> None:
        """Tell the owner of a session with a cell that has run for long without using its devices."""
        if self._activity.busy(session, now) is not True or self._meter.in_use(lease.id) is not False:
            self._busy.pop(session.id, None)
            self._said.discard((session.id, "cell"))
            return
        since = self._busy.setdefault(session.id, now)
        if now - since >= UNUSED_CELL_S:
            text = f"A cell has been running for {duration(now - since, parts=1)} without using its GPU."
            subject = f"Session {session.id} does not use its GPU"
            self._say(session, "cell", subject, text, key=f"cell {since}")

    def _unused_job(self, job: Job, lease: int, now: int) -> None:
        """Tell the owner of a job whose devices have done nothing for an hour."""
        since = self._meter.unused_since(lease)
        if since is None:
            self._said.discard((job.id, "unused"))
        elif now - since >= UNUSED_JOB_S and (job.id, "unused") not in self._said:
            self._said.add((job.id, "unused"))
            text = f"Its GPU has been at 0 % for {duration(now - since, parts=1)}."
            self._news.warning(job, text)
            self._ledger.note(job.id, text, now)
            look = f"{text}\n\nWhat it printed: jupyter gpupool logs {job.id}"
            self._tell(
                Message(f"job {job.id} unused {since}", job.owner, f"Job {job.id} does not use its GPU", look)
            )

    def _say(
        self,
        session: SessionRecord,
        what: str,
        subject: str,
        text: str,
        *,
        key: str,
        ends: int | None = None,
        again: bool = False,
    ) -> None:
        """Tell a session's owner once, in the browser and by message."""
        if (session.id, what) in self._said and not again:
            return
        self._said.add((session.id, what))
        self._news.warning(session, f"{subject}. {text}", ends)
        self._tell(occasions.of_session(session, key, subject, text))


def _what_then(action: IdleAction, now: int, ends: int) -> str:
    if action == "release":
        return (
            f"What it holds goes back to the pool in {duration(ends - now, parts=1)} unless it works by then."
        )
    if action == "stop":
        return f"It is stopped in {duration(ends - now, parts=1)} unless it works by then."
    return "Others could use what it holds: give it back if you do not need it."
