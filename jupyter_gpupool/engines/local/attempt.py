"""One attempt as the launcher sees it: what it is, what is due next, and how its end reads.

Owns: the deadlines of an attempt and the making of its `Ended`, as pure functions of what is known.
Never: a process, a file, a clock.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Literal

from jupyter_gpupool.engines.base import EndCause, Ended, Started, WorkSpec
from jupyter_gpupool.engines.local.proctree import Tree
from jupyter_gpupool.engines.local.records import ExitRecord, Records, RunnerRecord, StopRecord

Step = Literal["ask", "kill", "clear"]
KILL_AGAIN_S, RUNNER_PATIENCE_S = 0.2, 10.0
CLEAR_FIRST_S, CLEAR_LATEST_S, CLEAR_PATIENCE_S = 0.005, 1.0, 5.0


@dataclass(slots=True)
class Clearing:
    """The runner is gone; something of its job may not be. `report` is due once all is."""

    report: Ended
    since: float
    again: float
    wait: float = CLEAR_FIRST_S
    told: bool = False

    def put_off(self, now: float) -> None:
        """Look again a little later each time."""
        self.again = now + self.wait
        self.wait = min(2 * self.wait, CLEAR_LATEST_S)


@dataclass(slots=True)
class Attempt:
    """An attempt that is not forgotten.

    `pidfd` is the live runner's (-1: there is none); `begun` counts the runners this launcher made
    for it: one that ends before it let the program go is replaced once.
    """

    spec: WorkSpec
    records: Records = field(init=False)
    runner: RunnerRecord | None = None
    pidfd: int = -1
    begun: int = 0
    stop: StopRecord | None = None
    kill_again: float = 0.0
    clearing: Clearing | None = None
    end: Ended | None = None

    def __post_init__(self) -> None:
        self.records = Records.of(self.spec)

    @property
    def alive(self) -> bool:
        """Whether a process of it may exist."""
        return self.pidfd >= 0 or self.clearing is not None

    @property
    def tree(self) -> Tree:
        """The attempt's processes."""
        leaf = self.runner.leaf if self.runner else None
        pid = self.runner.pid if self.runner and self.pidfd >= 0 else 0
        return Tree(leaf, pid, str(self.records.folder))

    def started(self) -> Started:
        """The attempt as it was when it started."""
        if self.runner is None:
            return Started(self.spec.key, 0, self.end.ended if self.end else 0.0, None, False)
        leaf = self.runner.leaf
        return Started(
            self.spec.key,
            self.runner.pid,
            self.runner.started,
            leaf.name if leaf else None,
            leaf is not None,
        )

    def report(self) -> Started | Ended:
        """Where the attempt stands."""
        return self.end or self.started()

    def hard_end(self) -> float:
        """When the time limit ends it, in monotonic seconds."""
        return (self.runner.clock if self.runner else 0.0) + self.spec.limit_s

    def next_step(self) -> tuple[float, Step] | None:
        """When what is due; None when nothing is."""
        if self.clearing:
            return self.clearing.again, "clear"
        if self.pidfd < 0:
            return None
        if self.stop:
            return max(self.stop.kill_at, self.kill_again), "kill"
        return self.hard_end() - min(self.spec.grace_s, self.spec.limit_s // 2), "ask"

    def nudge(self, now: float) -> signal.Signals:
        """What the runner of a killed job gets: a job may have stopped it, or worse."""
        late = self.stop is not None and now - self.stop.kill_at > RUNNER_PATIENCE_S
        return signal.SIGKILL if late else signal.SIGCONT

    def asked_by_limit(self) -> StopRecord:
        """The request to end that the time limit makes."""
        return StopRecord("limit", self.hard_end())

    def asked(self, request: StopRecord) -> StopRecord:
        """`request` united with what holds already: the newer cause, the earlier end.

        Work that is cancelled, or at its limit, is not to run again: a ``stop`` changes no earlier cause.
        """
        if self.stop is None:
            return StopRecord(request.cause, min(request.kill_at, self.hard_end()))
        cause = self.stop.cause if request.cause == "stop" else request.cause
        return StopRecord(cause, min(request.kill_at, self.stop.kill_at, self.hard_end()))

    def ended_as(self, record: ExitRecord, *, tree_gone: bool, peak_mib: int | None, oom: bool) -> Ended:
        """The end that the runner reported."""
        cause: EndCause = "start" if record.cause == "start" else self.stop.cause if self.stop else "exit"
        message = record.message if cause in ("start", "exit") else ""
        if cause == "limit" and record.exit_code != 0:
            message = f"The time limit of {self.spec.limit_s} s was reached."
        peak = record.peak_mib if peak_mib is None else peak_mib
        return Ended(
            self.spec.key, record.exit_code, record.signal, cause, message, peak, oom, record.ended, tree_gone
        )

    def lost(self, now: float) -> Ended:
        """The end of an attempt whose runner was killed at Unix time `now`."""
        cause: EndCause = self.stop.cause if self.stop else "lost"
        message = "The job's runner was killed, and the job with it."
        return Ended(self.spec.key, None, None, cause, message, None, False, now, False)

    def rebooted(self, now: float) -> Ended:
        """The end of an attempt that ran when the machine went down."""
        message = "The machine restarted while the job was running."
        return Ended(self.spec.key, None, None, "reboot", message, None, False, now, True)

    def never_began(self, message: str, now: float) -> Ended:
        """The end of an attempt that could not be started."""
        return Ended(self.spec.key, None, None, "start", message, None, False, now, True)
