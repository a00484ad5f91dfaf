"""What becomes of a job that waits: queued, held, released, cancelled.

Owns: the next version of such a job. Pure. Never: writes it down.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpupool.ledger.age import rested
from jupyter_gpupool.ledger.records import Job, JobState, NewJob


def queued(new: NewJob, id: int, submitted: int, now: int, **more: Any) -> Job:
    """Return a job that is queued `now` (or held, if `new.held` says why)."""
    return Job(
        id=id,
        state=JobState.HELD if new.held else JobState.QUEUED,
        submitted=submitted,
        waiting_since=None if new.held else now,
        **vars(new) | more,
    )


def held(job: Job, reason: str, now: int) -> Job:
    """Return a queued job held back; `reason` says who or why."""
    return job.moved(JobState.HELD, held=reason, **rested(job, now))


def released(job: Job, now: int) -> Job:
    """Return a held job free to run again."""
    return job.moved(JobState.QUEUED, held="", waiting_since=now)


def cancelled(job: Job, reason: str, now: int) -> Job:
    """Return a job that waits cancelled."""
    return job.moved(JobState.CANCELLED, reason=reason, held="", ended=now, **rested(job, now))
