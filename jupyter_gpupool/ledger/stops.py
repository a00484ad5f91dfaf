"""Stops for others: asked for, carried out, remembered.

Owns: the transactions that ask a job's attempt to leave for others, put the job back into the queue (or hold
it, where stops bring it no further), and record that it can resume. Never: who is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_gpupool.ledger.database import Change
from jupyter_gpupool.ledger.errors import IllegalTransition
from jupyter_gpupool.ledger.records import Job, JobState, LeaseRecord, LeaseState, Note
from jupyter_gpupool.scheduler.back_off import MOST_IN_VAIN, back_off, stops_in_vain
from jupyter_gpupool.scheduler.model import Stop

IN_VAIN = (
    f"it was stopped for others {MOST_IN_VAIN} times without getting further: no newer file in its "
    "GPUPOOL_CHECKPOINT_DIR, no higher progress()"
)


@dataclass(frozen=True)
class StopOrder:
    """One stop of a plan, and the sentence that its owner reads."""

    stop: Stop
    reason: str


@dataclass(frozen=True)
class Mark:
    """How far a job is: the time of its newest checkpoint file, and the fraction it has reported."""

    saved_ms: int = 0
    progress_ppm: int = 0

    def beyond(self, job: Job) -> bool:
        """Whether that is further than at the job's last stop."""
        return self.saved_ms > job.saved_ms or self.progress_ppm > job.progress_ppm


class Stops:
    """The stops of one ledger; each method is one transaction, as those of `Ledger` are.

    Parameters
    ----------
    jobs, leases
        The ledger's.
    save
        Commits a change at a time.
    """

    def __init__(
        self,
        jobs: Mapping[int, Job],
        leases: Mapping[int, LeaseRecord],
        save: Callable[[Change, int], None],
    ) -> None:
        self._jobs = jobs
        self._leases = leases
        self._save = save
        self._asked: dict[int, set[int]] = {}

    def follow(self, lease: LeaseRecord) -> None:
        """Take over the newest version of a lease."""
        if lease.cause:
            self._asked.setdefault(lease.work, set()).add(lease.id)

    def forget(self, works: Sequence[int]) -> None:
        """Drop what was remembered of work that the ledger no longer has."""
        for work in works:
            self._asked.pop(work, None)

    def of(self, work: int) -> list[LeaseRecord]:
        """Return the leases that a job was asked to leave for others, oldest first."""
        return [self._leases[id] for id in sorted(self._asked.get(work, ()))]

    def possible(self, stop: Stop) -> bool:
        """Whether a stop still concerns what runs: the lease is held, and nobody has asked for it yet."""
        job, lease = self._jobs.get(stop.work), self._leases.get(stop.lease)
        return (
            job is not None
            and lease is not None
            and job.lease == lease.id
            and job.state in (JobState.STARTING, JobState.RUNNING)
            and lease.state in (LeaseState.REQUESTED, LeaseState.HELD)
            and lease.asked is None
        )

    def ask(self, orders: Sequence[StopOrder], now: int) -> list[LeaseRecord]:
        """Record that attempts are asked to leave for others; all or none, in one commit.

        Raises
        ------
        IllegalTransition
            If one of them does not run, or has been asked already.
        """
        if not orders:
            return []
        change = Change()
        for order in orders:
            stop = order.stop
            if not self.possible(stop):
                raise IllegalTransition(f"job {stop.work} cannot be asked to leave lease {stop.lease} now.")
            job = self._jobs[stop.work].moved(JobState.STOPPING, reason=order.reason)
            lease = replace(self._leases[stop.lease], asked=now, cause=stop.cause, taker=stop.taker)
            change.jobs[job.id] = job
            change.leases[lease.id] = lease
            change.notes.append(Note(now, job.id, order.reason))
        self._save(change, now)
        return list(change.leases.values())

    def left(
        self, id: int, attempt: int, mark: Mark | None, min_run_time: int, now: int, *, free: bool
    ) -> Job:
        """Record that an attempt has left for others: the job is queued again and rests, or is held.

        Parameters
        ----------
        mark
            How far the job is; None = nobody can say, and nothing is counted against it.
        free
            As in `Ledger.end_job`.

        Raises
        ------
        IllegalTransition
            If the attempt was not asked to leave for others.
        """
        job = self._jobs[id]
        lease = self._leases.get(job.lease or 0)
        if lease is None or not lease.cause or not job.state.live or job.attempt != attempt:
            raise IllegalTransition(f"job {id} was not asked to leave attempt {attempt} for others.")
        ran = 0 if job.started is None else (lease.asked or now) - job.started
        progress = mark is None or mark.beyond(job)
        in_vain = stops_in_vain(job.in_vain, ran, min_run_time, progress=progress)
        held = in_vain >= MOST_IN_VAIN
        back = job.moved(
            JobState.HELD if held else JobState.QUEUED,
            held=IN_VAIN if held else "",
            stops=job.stops + 1,
            in_vain=0 if held else in_vain,
            saved_ms=max(job.saved_ms, mark.saved_ms if mark else 0),
            progress_ppm=max(job.progress_ppm, mark.progress_ppm if mark else 0),
            not_before=now + back_off(job.stops + 1),
            started=None,
            waiting_since=None if held else now,
        )
        released = lease.released(now, free=free)
        notes = [Note(now, id, f"Held: {IN_VAIN}.")] if held else []
        self._save(Change(jobs={id: back}, leases={released.id: released}, notes=notes), now)
        return back

    def can_resume(self, id: int, now: int) -> Job:
        """Record that a live job has written a checkpoint, and so may be stopped for others.

        Raises
        ------
        IllegalTransition
            If no attempt of it is under way.
        """
        present = self._jobs[id]
        if not present.state.live or present.lease is None:
            raise IllegalTransition(f"job {id} is {present.state.value}: it runs no more.")
        job = replace(present, resumable=True)
        lease = replace(self._leases[present.lease], resumable=True)
        self._save(Change(jobs={id: job}, leases={lease.id: lease}), now)
        return job
