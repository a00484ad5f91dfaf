"""What waits and what is held, in the scheduler's words, kept ready between passes.

Owns the translation of records into `scheduler.model` values and their order. A record is translated
once, when it changes; never at each pass.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from jupyter_gpupool.ledger.records import Job, LeaseRecord, SessionRecord, SessionState
from jupyter_gpupool.scheduler.model import Lease, Work


def work_of_job(job: Job, after: tuple[int, ...] = (), array_limit: int | None = None) -> Work:
    """Return a queued or held job, which waits for what is `after`, as the scheduler sees it."""
    return Work(
        id=job.id,
        kind="job",
        user=job.owner,
        group=job.group,
        priority=job.priority,
        submitted=job.submitted,
        limit=job.limit_s,
        request=job.request,
        resumable=job.resumable,
        held=job.held,
        not_before=job.not_before,
        window=job.window,
        age=job.age_s,
        grace=job.grace_s,
        after=after,
        array=job.array,
        array_limit=array_limit,
    )


def work_of_session(session: SessionRecord, after: tuple[int, ...] = ()) -> Work:
    """Return a waiting session, which comes after others of its server, as the scheduler sees it."""
    return Work(
        id=session.id,
        kind="session",
        user=session.owner,
        group=session.group,
        priority=session.priority,
        submitted=session.submitted,
        limit=session.limit_s,
        request=session.request,
        after=after,
    )


def lease_view(record: LeaseRecord, array: int | None = None, array_limit: int | None = None) -> Lease:
    """Return a live lease as the scheduler sees it; of an array's task, with the array."""
    return Lease(
        id=record.id,
        work=record.work,
        kind=record.kind,
        user=record.owner,
        group=record.group,
        priority=record.priority,
        request=record.request,
        placement=record.placement,
        start=record.start,
        end=record.end,
        whole=record.whole,
        resumable=record.resumable,
        grace=record.grace_s,
        asked=record.asked,
        array=array,
        array_limit=array_limit,
    )


class Successions:
    """The sessions of each Hub's server that are not over: one comes after the other."""

    def __init__(self) -> None:
        self._sessions: dict[str, set[int]] = {}

    def follow(self, session: SessionRecord) -> list[int]:
        """Take over the newest version of a session; return it and those of its server that are not over."""
        if session.server is None:
            return [session.id]
        there = self._sessions.setdefault(session.server, set())
        if session.state is SessionState.ENDED:
            there.discard(session.id)
            if not there:
                del self._sessions[session.server]
        else:
            there.add(session.id)
        return sorted(there | {session.id})

    def before(self, session: SessionRecord) -> tuple[int, ...]:
        """Return the earlier sessions of the same server that are not over."""
        return tuple(sorted(id for id in self.of(session.server) if id < session.id))

    def of(self, server: str | None) -> frozenset[int]:
        """Return the sessions of a server that are not over."""
        return frozenset(self._sessions.get(server, ()) if server is not None else ())


class Waiting:
    """All that waits, sorted by (submitted, id)."""

    def __init__(self) -> None:
        self._order: list[tuple[int, int]] = []
        self._works: dict[int, Work] = {}
        self._ready: tuple[Work, ...] | None = ()

    def follow(self, id: int, work: Work | None) -> None:
        """Take over the newest version of a piece of work; None if it does not wait."""
        if work is not None and work == self._works.get(id):
            return
        known = self._works.pop(id, None)
        if work is not None:
            self._works[id] = work
            if known is None:
                insort(self._order, (work.submitted, id))
        elif known is not None:
            del self._order[bisect_left(self._order, (known.submitted, id))]
        self._ready = None

    def all(self) -> tuple[Work, ...]:
        """Return everything in order; the same object until something changes."""
        if self._ready is None:
            self._ready = tuple(self._works[id] for _, id in self._order)
        return self._ready


class Held:
    """All live leases, those last that changed last."""

    def __init__(self) -> None:
        self._leases: dict[int, Lease] = {}
        self._ready: tuple[Lease, ...] | None = ()

    def follow(self, id: int, lease: Lease | None) -> None:
        """Take over the newest version of a lease; None if it is free."""
        self._leases.pop(id, None)
        if lease is not None:
            self._leases[id] = lease
        self._ready = None

    def all(self) -> tuple[Lease, ...]:
        """Return every live lease; the same object until something changes."""
        if self._ready is None:
            self._ready = tuple(self._leases.values())
        return self._ready
