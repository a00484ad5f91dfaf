"""What follows from the records, kept ready in memory.

Owns: what waits and what is held in the scheduler's words, the order of a server's sessions, who comes after
whom, which jobs are whose tasks, and idempotency keys; all brought up to date after every commit. Never: a
record, a write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from jupyter_gpupool.ledger.arrays import Arrays
from jupyter_gpupool.ledger.database import Change, Contents
from jupyter_gpupool.ledger.dependencies import Dependencies
from jupyter_gpupool.ledger.records import (
    ArrayRecord,
    Job,
    LeaseRecord,
    SessionRecord,
    SessionState,
)
from jupyter_gpupool.ledger.stops import Stops
from jupyter_gpupool.ledger.views import Held, Successions, Waiting, lease_view, work_of_job, work_of_session
from jupyter_gpupool.scheduler.model import Lease, Work


class Image:
    """The image of one ledger's contents; `save` is how its transactions are committed."""

    def __init__(self, contents: Contents, save: Callable[[Change, int], None]) -> None:
        self._contents = contents
        self.waiting = Waiting()
        self.held = Held()
        self.servers = Successions()
        self.keys: dict[tuple[str, str], int] = {}
        self.stops = Stops(contents.jobs, contents.leases, save)
        self.arrays = Arrays(contents.arrays, contents.jobs, contents.next, save)
        self.dependencies = Dependencies(contents.jobs, self.arrays)
        self._follow(
            contents.jobs.values(),
            contents.sessions.values(),
            contents.leases.values(),
            contents.arrays.values(),
        )

    def follow(self, change: Change) -> None:
        """Follow a change that was committed."""
        self._follow(
            change.jobs.values(), change.sessions.values(), change.leases.values(), change.arrays.values()
        )

    def forget(self, jobs: Collection[int], arrays: Collection[int]) -> None:
        """Drop what follows from jobs and arrays that are no longer kept."""
        gone = {*jobs, *arrays}
        self.keys = {key: id for key, id in self.keys.items() if id not in gone}
        self.stops.forget([*jobs])
        self.arrays.forget(arrays)

    def _follow(
        self,
        jobs: Collection[Job],
        sessions: Iterable[SessionRecord],
        leases: Iterable[LeaseRecord],
        arrays: Collection[ArrayRecord],
    ) -> None:
        submitted: tuple[Job | ArrayRecord, ...] = (*jobs, *arrays)
        self.keys |= {(work.owner, work.key): work.id for work in submitted if work.key is not None}
        for job in jobs:
            self.arrays.follow(job)
            self.dependencies.follow(job)
        followers = self.dependencies.touched(jobs, (array.id for array in arrays))
        touched = (*jobs, *(self._contents.jobs[id] for id in followers))
        self.dependencies.judge(touched)
        for job in touched:
            self.waiting.follow(job.id, self._work(job) if job.state.waiting else None)
        for session in sessions:
            for id in self.servers.follow(session):
                self._show_session(self._contents.sessions[id])
        for lease in leases:
            self.held.follow(lease.id, self._lease(lease) if lease.live else None)
            self.stops.follow(lease)

    def _work(self, job: Job) -> Work:
        return work_of_job(job, self.dependencies.before(job), self.arrays.limit_of(job))

    def _lease(self, lease: LeaseRecord) -> Lease:
        job = self._contents.jobs.get(lease.work)
        return lease_view(lease, job.array, self.arrays.limit_of(job)) if job else lease_view(lease)

    def _show_session(self, session: SessionRecord) -> None:
        waits = session.state is SessionState.WAITING
        work = work_of_session(session, self.servers.before(session)) if waits else None
        self.waiting.follow(session.id, work)
