"""What simulated work does once it has its lease: how long it takes, and what a stop costs it.

Owns: when a run ends and with which outcome, what is done when it is stopped, and when it may run again.
A job takes `latency` to begin, then works; asked to stop, it works on until the end of its grace, and is
completed if its work is done by then. A session is over when its person goes home.
Never: when to start or stop something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jupyter_gpupool.scheduler.back_off import back_off
from jupyter_gpupool.scheduler.model import Lease, Seconds, Work
from jupyter_gpupool.simulator.workload import Task

Outcome = Literal["completed", "timed_out", "preempted"]
Resume = Literal["keep", "lose"]


@dataclass(slots=True)
class Run:
    """Work on its cards, until it leaves them."""

    work: Work
    lease: Lease
    until: Seconds
    outcome: Outcome


class Runs:
    """All that runs, by the id of its work, and what earlier runs have done.

    Parameters
    ----------
    start
        When the simulation begins, UTC.
    latency
        Seconds from a job's lease to the beginning of its work.
    resume
        Whether a stopped job keeps the work that it has done.
    """

    def __init__(self, tasks: Sequence[Task], start: Seconds, latency: Seconds, resume: Resume) -> None:
        self.live: dict[int, Run] = {}
        self._tasks = tasks
        self._start = start
        self._latency = latency
        self._resume = resume
        self._done: Counter[int] = Counter()
        self._stops: Counter[int] = Counter()

    def done(self, id: int) -> Seconds | None:
        """Return the seconds of work that earlier runs leave to build on; None before the first stop."""
        return self._done[id] if self._stops[id] else None

    def begin(self, work: Work, lease: Lease) -> Run:
        """Let work begin; tell how its run ends if nobody stops it."""
        task = self._tasks[work.id - 1]
        if work.kind == "session":
            over = self._start + task.submit + task.duration
        else:
            over = lease.start + self._latency + task.duration - self._done[work.id]
        run = Run(work, lease, min(over, lease.end), "completed" if over <= lease.end else "timed_out")
        self.live[work.id] = run
        return run

    def ask(self, id: int, now: Seconds) -> Run | None:
        """Ask a job to stop; return its run as it now ends, or None if it was asked before or is over."""
        run = self.live.get(id)
        if run is None or run.lease.asked is not None:
            return None
        run.lease = replace(run.lease, asked=now)
        if run.until > now + run.lease.grace:
            run.until, run.outcome = now + run.lease.grace, "preempted"
        return run

    def over(self, id: int, now: Seconds) -> tuple[Run, Work | None]:
        """End a run; return it, and its work as it is queued again if it was stopped for others."""
        run = self.live.pop(id)
        if run.outcome != "preempted":
            return run, None
        if self._resume == "keep":
            self._done[id] += max(0, now - run.lease.start - self._latency)
        self._stops[id] += 1
        return run, replace(run.work, not_before=now + back_off(self._stops[id]))
