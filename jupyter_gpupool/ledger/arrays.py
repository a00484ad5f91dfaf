"""Arrays: jobs that differ in one number, most of which need not exist yet.

Owns: the transactions on an array as a whole, which of its tasks are jobs, and how they stand together.
Never: when more of them become jobs, which is the service's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace

from jupyter_gpupool.ledger.database import Change
from jupyter_gpupool.ledger.errors import IllegalTransition, UnknownId
from jupyter_gpupool.ledger.records import ArrayRecord, Job, JobState, NewJob, Note
from jupyter_gpupool.ledger.steps import cancelled, held, queued, released

FRESH = 32
"""How many tasks of an array that have never run wait as jobs at once."""

_AS_A_WHOLE = (
    JobState.RUNNING,
    JobState.STOPPING,
    JobState.STARTING,
    JobState.QUEUED,
    JobState.HELD,
    JobState.FAILED,
    JobState.TIMED_OUT,
    JobState.CANCELLED,
    JobState.COMPLETED,
)
"""An array is in the first of these states that one of its tasks is in."""


class Arrays:
    """The arrays of one ledger; each method that changes something is one transaction.

    Parameters
    ----------
    records, jobs
        The ledger's.
    numbers
        The next number of each sequence.
    save
        Commits a change at a time.
    """

    def __init__(
        self,
        records: Mapping[int, ArrayRecord],
        jobs: Mapping[int, Job],
        numbers: Mapping[str, int],
        save: Callable[[Change, int], None],
    ) -> None:
        self.records = records
        self._jobs = jobs
        self._numbers = numbers
        self._save = save
        self._tasks: dict[int, dict[int, int]] = {}
        self._states: dict[int, JobState] = {}
        self._counts: dict[int, Counter[JobState]] = {}
        self._fresh: dict[int, set[int]] = {}

    # -- following the ledger ------------------------------------------------------------------------

    def follow(self, job: Job) -> None:
        """Take over the newest version of a job."""
        if job.array is None or job.index is None:
            return
        self._tasks.setdefault(job.array, {})[job.index] = job.id
        counts = self._counts.setdefault(job.array, Counter())
        counts[job.state] += 1  # before it counts no more where it was: others may look meanwhile
        if before := self._states.get(job.id):
            counts[before] -= 1
        self._states[job.id] = job.state
        fresh = self._fresh.setdefault(job.array, set())
        if job.state is JobState.QUEUED and not job.attempt:
            fresh.add(job.id)
        else:
            fresh.discard(job.id)

    def forget(self, arrays: Iterable[int]) -> None:
        """Drop what was remembered of arrays that the ledger no longer has."""
        for id in arrays:
            for job in self._tasks.pop(id, {}).values():
                del self._states[job]
            self._counts.pop(id, None)
            self._fresh.pop(id, None)

    # -- looking -------------------------------------------------------------------------------------

    def tasks(self, id: int) -> Mapping[int, int]:
        """Return the jobs of an array: the number of each task, and that of its job."""
        return self._tasks.get(id, {})

    def jobs(self, id: int) -> list[Job]:
        """Return the tasks of an array that are jobs, by their numbers in it."""
        return [self._jobs[job] for _, job in sorted(self.tasks(id).items())]

    def counts(self, id: int) -> Counter[JobState]:
        """Return how many tasks of an array are in each state, those that are no jobs yet among them."""
        array = self.records[id]
        known = dict(self._counts.get(id, {}))  # a copy at once: others may count on meanwhile
        found = Counter({state: count for state, count in known.items() if count})
        if array.rest:
            found[rest_state(array)] += len(array.rest)
        return found

    def state(self, id: int) -> JobState:
        """Return the state of an array as a whole: while one task runs it runs; it has failed if one has."""
        counts = self.counts(id)
        return next(state for state in _AS_A_WHOLE if counts[state])

    def broken(self, id: int) -> bool:
        """Whether an array can no longer complete, because one of its tasks has not."""
        return any(state.ended and state is not JobState.COMPLETED for state in self.counts(id))

    def over(self, old: Callable[[Job], bool]) -> list[int]:
        """Return the arrays that have ended with all their tasks, each of which is `old`."""
        return [id for id in self.records if self.state(id).ended and all(map(old, self.jobs(id)))]

    def limit_of(self, job: Job) -> int | None:
        """Return how many tasks of a job's array may run at once."""
        return None if job.array is None else self.records[job.array].limit

    def short(self) -> list[int]:
        """Return the arrays of which so few tasks wait as jobs that more should."""
        return [
            array.id
            for array in self.records.values()
            if array.rest and not (array.held or array.cancelled)
            if len(self._fresh.get(array.id, ())) <= FRESH // 2
        ]

    def unfinished(self) -> list[int]:
        """Return the arrays with tasks that are no jobs yet, and will be."""
        return [array.id for array in self.records.values() if array.rest and not array.cancelled]

    def unborn(self, owner: str, group: str) -> int:
        """Return how many tasks of a user in a group wait that are no jobs yet."""
        return sum(
            len(array.rest)
            for array in self.records.values()
            if array.rest and not array.cancelled and array.owner == owner
            if self._jobs[array.first].group == group
        )

    # -- changing ------------------------------------------------------------------------------------

    def add(self, new: NewJob, tasks: tuple[int, ...], limit: int | None, now: int) -> ArrayRecord:
        """Queue an array; its first tasks are jobs at once."""
        id = self._numbers["work"]
        array = ArrayRecord(
            id=id,
            owner=new.owner,
            submitted=now,
            tasks=tasks,
            rest=tasks[FRESH:],
            limit=limit,
            limit_s=new.limit_s,
            first=id + 1,
            key=new.key,
            held=new.held,
        )
        pattern = replace(new, key=None)
        jobs = [
            queued(pattern, job, now, now, array=id, index=index)
            for job, index in enumerate(tasks[:FRESH], array.first)
        ]
        self._save(Change(arrays={id: array}, jobs={job.id: job for job in jobs}), now)
        return array

    def expand(self, id: int, now: int) -> list[Job]:
        """Make jobs of the next tasks of an array, as many as may wait."""
        room = FRESH - len(self._fresh.get(id, ()))
        return self._born(id, self.records[id].rest[: max(0, room)], now)

    def task(self, id: int, index: int, now: int) -> Job:
        """Return a task of an array as a job, which it becomes if it is none yet.

        Raises
        ------
        UnknownId
            The array has no such task.
        IllegalTransition
            The array was cancelled before the task became a job.
        """
        if index in self.tasks(id):
            return self._jobs[self._tasks[id][index]]
        array = self.records[id]
        if index not in array.rest:
            raise UnknownId(f"Array {id} has no task {index}.")
        if array.cancelled:
            raise IllegalTransition(f"task {index} of array {id} is cancelled: it cannot become a job.")
        return self._born(id, (index,), now)[0]

    def cancel(self, id: int, reason: str, now: int) -> list[Job]:
        """Cancel all tasks of an array that wait, and those that are no jobs yet; return those that were."""
        array = self.records[id]
        gone = [cancelled(job, reason, now) for job in self.jobs(id) if job.state.waiting]
        rest = (
            {id: replace(array, cancelled=array.cancelled or reason or "cancelled", held="")}
            if array.rest
            else {}
        )
        return self._change(gone, rest, reason, now)

    def hold(self, id: int, reason: str, now: int) -> list[Job]:
        """Hold back all tasks of an array that are queued, and those that are no jobs yet."""
        array = self.records[id]
        back = [held(job, reason, now) for job in self.jobs(id) if job.state is JobState.QUEUED]
        return self._change(back, {id: replace(array, held=reason or "held")}, reason, now)

    def release(self, id: int, now: int) -> list[Job]:
        """Let all tasks of an array run again that are held."""
        array = self.records[id]
        free = [released(job, now) for job in self.jobs(id) if job.state is JobState.HELD]
        return self._change(free, {id: replace(array, held="")}, "released", now)

    def _change(self, jobs: list[Job], arrays: dict[int, ArrayRecord], note: str, now: int) -> list[Job]:
        notes = [Note(now, job.id, note) for job in jobs]
        self._save(Change(arrays=arrays, jobs={job.id: job for job in jobs}, notes=notes), now)
        return jobs

    def _born(self, id: int, indices: tuple[int, ...], now: int) -> list[Job]:
        array = self.records[id]
        first = self._jobs[array.first]
        known = {field.name: getattr(first, field.name) for field in fields(NewJob)}
        pattern = NewJob(**known | {"held": array.held, "limit_s": array.limit_s})
        jobs = [
            queued(pattern, job, array.submitted, now, array=id, index=index)
            for job, index in enumerate(indices, self._numbers["work"])
        ]
        gone = set(indices)
        rest = replace(array, rest=tuple(index for index in array.rest if index not in gone))
        self._save(Change(arrays={id: rest}, jobs={job.id: job for job in jobs}), now)
        return jobs


def rest_state(array: ArrayRecord) -> JobState:
    """Return how the tasks of an array stand that are no jobs."""
    if array.cancelled:
        return JobState.CANCELLED
    return JobState.HELD if array.held else JobState.QUEUED
