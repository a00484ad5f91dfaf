"""Who comes after whom.

Owns: what a job that waits still waits for, which jobs and arrays it can no longer come after, and who
follows a job or an array. What is no longer kept has completed: who came after it otherwise was cancelled
long before. Never: cancels anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jupyter_gpupool.ledger.arrays import Arrays
from jupyter_gpupool.ledger.records import Job, JobState


class Dependencies:
    """The jobs that wait for others, by whom they wait for."""

    def __init__(self, jobs: Mapping[int, Job], arrays: Arrays) -> None:
        self._jobs = jobs
        self._arrays = arrays
        self._followers: dict[int, set[int]] = {}
        self.doomed: set[int] = set()
        """The jobs that wait for something that will never complete."""

    def follow(self, job: Job) -> None:
        """Take over the newest version of a job."""
        for before in (*job.after, *job.after_any):
            followers = self._followers.setdefault(before, set())
            if job.state.waiting:
                followers.add(job.id)
            else:
                followers.discard(job.id)
                if not followers:
                    del self._followers[before]

    def touched(self, jobs: Iterable[Job], arrays: Iterable[int]) -> set[int]:
        """Return the jobs that wait for one of these, or for one of their arrays."""
        changed = {*arrays}
        for job in jobs:
            changed |= {job.id} if job.array is None else {job.id, job.array}
        return {id for number in changed & self._followers.keys() for id in self._followers[number]}

    def judge(self, jobs: Iterable[Job]) -> None:
        """Look again whether these jobs wait in vain."""
        for job in jobs:
            if job.state.waiting and self.broken(job) is not None:
                self.doomed.add(job.id)
            else:
                self.doomed.discard(job.id)

    def before(self, job: Job) -> tuple[int, ...]:
        """Return the jobs and arrays that a job still waits for; one that failed stays among them."""
        return self.open(job.after, job.after_any)

    def open(self, after: Iterable[int], after_any: Iterable[int]) -> tuple[int, ...]:
        """Return those of `after` that have not completed, and those of `after_any` that have not ended."""
        uncompleted = (id for id in after if self._standing(id) is not JobState.COMPLETED)
        going_on = (id for id in after_any if not self._standing(id).ended)
        return tuple(dict.fromkeys((*uncompleted, *going_on)))

    def broken(self, job: Job) -> int | None:
        """Return the job or array that a job comes after and that will never complete."""
        return next((id for id in job.after if self._will_never_complete(id)), None)

    def _standing(self, id: int) -> JobState:
        if id in self._jobs:
            return self._jobs[id].state
        return self._arrays.state(id) if id in self._arrays.records else JobState.COMPLETED

    def _will_never_complete(self, id: int) -> bool:
        if id in self._arrays.records:
            return self._arrays.broken(id)
        standing = self._standing(id)
        return standing.ended and standing is not JobState.COMPLETED
