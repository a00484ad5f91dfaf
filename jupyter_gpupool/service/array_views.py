"""Arrays, and their tasks that are no jobs yet, as replies.

Owns: how the tasks of an array look together, in the shape of a job. Never: what one job looks like (see
`views`).
"""

from __future__ import annotations

from collections import Counter

from jupyter_gpupool.ledger.arrays import rest_state
from jupyter_gpupool.ledger.records import ArrayRecord, Job, JobState
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy.ranges import array_text
from jupyter_gpupool.scheduler.model import Verdict
from jupyter_gpupool.service.forecast import Forecast
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.naming import Named, Unborn, label
from jupyter_gpupool.service.replies import JobReply, WaitingReply
from jupyter_gpupool.service.views import Views, plain

NAMES_SHOWN = 5
ENDINGS = {JobState.FAILED: "failed", JobState.TIMED_OUT: "timed out", JobState.CANCELLED: "cancelled"}


class ArrayViews:
    """Makes replies out of whatever has a name: a job, an array, a task."""

    def __init__(self, ledger: Ledger, forecast: Forecast, views: Views) -> None:
        self._ledger = ledger
        self._forecast = forecast
        self._views = views

    def of(self, found: Named, who: Identity) -> JobReply:
        """Return a job, an array or a task as `who` may see it."""
        if isinstance(found, Job):
            return self._views.job(found, who, self._forecast.of(found.id))
        if isinstance(found, Unborn):
            return self._unborn(found, who)
        return self._array(found, who)

    def position(self, found: Job | ArrayRecord) -> int | None:
        """Return the place in the queue of a job, or of the task of an array that is next."""
        verdict = self._forecast.of(found.id) if isinstance(found, Job) else self._next(found)[1]
        return verdict.position if verdict else None

    def lead(self, found: Named) -> Job | None:
        """Return the job that is queued, or of an array the task that is next; None if there is none."""
        if isinstance(found, Unborn):
            return None
        job = found if isinstance(found, Job) else self._next(found)[0]
        return job if job is not None and job.state is JobState.QUEUED else None

    def _array(self, array: ArrayRecord, who: Identity) -> JobReply:
        arrays = self._ledger.arrays
        jobs, state = arrays.jobs(array.id), arrays.state(array.id)
        counts = arrays.counts(array.id)
        found = self._views.job(self._ledger.jobs[array.first], who)
        named = found["user"] is not None
        waits = counts[JobState.QUEUED] + counts[JobState.HELD] > 0
        outcome = ending(jobs, counts) if state.ended and named else None
        started = [job.started for job in jobs if job.started is not None]
        bad = next((job.exit_code for job in jobs if job.exit_code), None)
        return {
            **found,
            "id": array.id,
            "state": state.value,
            "time_s": array.limit_s,
            "submitted_at": iso(array.submitted),
            "started_at": iso(min(started, default=None)),
            "ended_at": iso(max(job.ended or 0 for job in jobs)) if state.ended else None,
            "expires_at": None,
            "attempt": max(job.attempt for job in jobs),
            "exit_code": bad if bad is not None else 0 if state is JobState.COMPLETED else None,
            "signal": None,
            "outcome": outcome,
            "reason": outcome,
            "waiting": self._waiting(array, who, named=named) if waits else None,
            "placement": None,
            "progress": None,
            "diagnosis": None,
            "folder": None,
            "out": None,
            "log": None,
            "array": {
                "tasks": array_text(array.tasks),
                "count": len(array.tasks),
                "limit": array.limit,
                "states": {one.value: count for one, count in counts.items()},
            },
            "array_id": None,
            "array_index": None,
            "failures": sum(job.failures for job in jobs),
        }

    def _waiting(self, array: ArrayRecord, who: Identity, *, named: bool) -> WaitingReply:
        job, verdict = self._next(array)
        if job is None:
            return _held(array, named=named)
        waiting = self._views.job(job, who, verdict)["waiting"]
        assert waiting is not None, "it waits"
        return waiting

    def _next(self, array: ArrayRecord) -> tuple[Job | None, Verdict | None]:
        """Return the task of an array that starts next, as far as is known, with what is said about it."""
        waiting = [job for job in self._ledger.arrays.jobs(array.id) if job.state.waiting]
        queued = [job for job in waiting if job.state is JobState.QUEUED] or waiting
        ranked = [(job, self._forecast.of(job.id)) for job in queued]
        placed = [one for one in ranked if one[1] and one[1].position is not None]
        if placed:
            return min(placed, key=lambda one: (one[1].position or 0) if one[1] else 0)
        return ranked[0] if ranked else (None, None)

    def _unborn(self, task: Unborn, who: Identity) -> JobReply:
        array, state = task.array, rest_state(task.array)
        found = self._array(array, who)
        gone = state is JobState.CANCELLED
        named = found["user"] is not None
        reason = array.cancelled if gone and named else None
        ended = max(job.ended or 0 for job in self._ledger.arrays.jobs(array.id))
        return {
            **found,
            "state": state.value,
            "started_at": None,
            "ended_at": iso(ended) if gone else None,
            "attempt": 0,
            "exit_code": None,
            "outcome": reason,
            "reason": reason,
            "waiting": None if gone else _held(array, named=named) if array.held else self._behind(task),
            "array": None,
            "array_id": array.id,
            "array_index": task.index,
            "failures": 0,
        }

    def _behind(self, task: Unborn) -> WaitingReply:
        before = len(task.array.rest[: task.array.rest.index(task.index)])
        before += sum(job.state.waiting for job in self._ledger.arrays.jobs(task.array.id))
        return plain(
            "Priority",
            f"Waits behind {before:,} earlier tasks of its array.",
            "It clears as they start; then it gets an expected start of its own.",
        )


def ending(jobs: list[Job], counts: Counter[JobState]) -> str:
    """Say how the tasks of an array ended."""
    total = sum(counts.values())
    if counts[JobState.COMPLETED] == total:
        return f"All {total:,} tasks completed." if total != 1 else "Its task completed."
    parts = [f"{counts[state]:,} {word}" for state, word in ENDINGS.items() if counts[state]]
    bad = [label(job) for job in jobs if job.state in (JobState.FAILED, JobState.TIMED_OUT)]
    more = f" and {len(bad) - NAMES_SHOWN:,} more" if len(bad) > NAMES_SHOWN else ""
    names = f": {', '.join(bad[:NAMES_SHOWN])}{more}" if bad else ""
    return f"Of {total:,} tasks {counts[JobState.COMPLETED]:,} completed, {', '.join(parts)}{names}."


def _held(array: ArrayRecord, *, named: bool) -> WaitingReply:
    why = (array.held if named else "") or "by hand"
    return plain("Held", f"Held: {why}.", f"Let it start with: jupyter gpupool release {array.id}")
