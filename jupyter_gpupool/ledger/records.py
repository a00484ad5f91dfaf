"""What the ledger remembers: immutable records, their states, and which state may follow which.

Owns the record types and the transition tables. Never touches a database; a changed record is a
new one, made by `moved`, which refuses what the tables do not allow.

Times are whole seconds since the epoch (UTC); sizes are MiB, milli-GPU and milli-CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, Literal, TypeAlias

from jupyter_gpupool.ledger.errors import IllegalTransition
from jupyter_gpupool.scheduler.model import Kind, Placement, Request, StopCause

JobKind: TypeAlias = Literal["script", "cell", "notebook", "function", "command"]
WorkdirMode: TypeAlias = Literal["here", "snapshot"]


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def waiting(self) -> bool:
        """Whether the job is in the queue (held jobs keep their place in it)."""
        return self in (JobState.QUEUED, JobState.HELD)

    @property
    def live(self) -> bool:
        """Whether an attempt of the job is under way."""
        return self in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)

    @property
    def ended(self) -> bool:
        """Whether the job has its outcome; nothing follows."""
        return not (self.waiting or self.live)


class LeaseState(StrEnum):
    """Where a grant is in its life; all but `free` occupy their resources."""

    REQUESTED = "requested"
    HELD = "held"
    RELEASING = "releasing"
    FREE = "free"


class SessionState(StrEnum):
    """Where a session is in its life."""

    WAITING = "waiting"
    HELD = "held"
    RELEASING = "releasing"
    ENDED = "ended"

    @property
    def live(self) -> bool:
        """Whether the session waits or holds its lease: nobody has ended it yet."""
        return self in (SessionState.WAITING, SessionState.HELD)


_OUTCOMES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})

JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.HELD, JobState.STARTING, JobState.CANCELLED}),
    JobState.HELD: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.STARTING: _OUTCOMES | {JobState.RUNNING, JobState.STOPPING, JobState.QUEUED},
    JobState.RUNNING: _OUTCOMES | {JobState.STOPPING, JobState.QUEUED},
    JobState.STOPPING: _OUTCOMES | {JobState.STOPPING, JobState.QUEUED, JobState.HELD},
    **{outcome: frozenset() for outcome in _OUTCOMES},
}

LEASE_TRANSITIONS: Mapping[LeaseState, frozenset[LeaseState]] = {
    LeaseState.REQUESTED: frozenset({LeaseState.HELD, LeaseState.RELEASING}),
    LeaseState.HELD: frozenset({LeaseState.RELEASING}),
    LeaseState.RELEASING: frozenset({LeaseState.FREE}),
    LeaseState.FREE: frozenset(),
}

SESSION_TRANSITIONS: Mapping[SessionState, frozenset[SessionState]] = {
    SessionState.WAITING: frozenset({SessionState.HELD, SessionState.ENDED}),
    SessionState.HELD: frozenset({SessionState.RELEASING}),
    SessionState.RELEASING: frozenset({SessionState.ENDED}),
    SessionState.ENDED: frozenset(),
}


@dataclass(frozen=True)
class NewJob:
    """A job as it is submitted; the ledger gives it a number, a time and a state."""

    owner: str
    group: str
    name: str
    kind: JobKind
    priority: str
    limit_s: int
    grace_s: int
    request: Request
    entry: Mapping[str, Any]
    workdir: str
    workdir_mode: WorkdirMode = "here"
    resumable: bool = False
    window: str | None = None
    snapshot: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    interpreter: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notify: tuple[str, ...] = ()
    held: str = ""
    key: str | None = None
    after: tuple[int, ...] = ()
    after_any: tuple[int, ...] = ()
    retries: int = 0


@dataclass(frozen=True)
class Job:
    """One job, from submission to its outcome and until retention drops it.

    `held` says why it is held back by hand; `reason` why it was requeued or how it ended.
    `attempt` counts starts (0 before the first). `age_s` is what counts for the step in
    priority; since `waiting_since` (if set) more has accrued that is not in it yet.
    `started` is that of the last attempt; `lease` is the last attempt's.

    `stops` counts how often it was stopped for others, `in_vain` the last of them that came without
    progress. How far it was then: `saved_ms` is the time of its newest checkpoint file, `progress_ppm` the
    highest fraction that it has reported, in millionths.

    A task of the array `array` has the number `index` in it. The job waits for jobs and arrays: for those of
    `after` until they have completed, for those of `after_any` until they have ended. `failures` counts how
    often its program has failed; as often as `retries` it is then tried again.
    """

    id: int
    owner: str
    group: str
    name: str
    kind: JobKind
    state: JobState
    priority: str
    submitted: int
    limit_s: int
    grace_s: int
    request: Request
    entry: Mapping[str, Any]
    workdir: str
    workdir_mode: WorkdirMode
    resumable: bool
    window: str | None
    snapshot: str | None
    environment: Mapping[str, str]
    interpreter: Mapping[str, Any]
    provenance: Mapping[str, Any]
    notify: tuple[str, ...]
    key: str | None
    held: str = ""
    reason: str = ""
    attempt: int = 0
    not_before: int = 0
    age_s: int = 0
    waiting_since: int | None = None
    started: int | None = None
    ended: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    diagnosis: Mapping[str, Any] | None = None
    lease: int | None = None
    stops: int = 0
    in_vain: int = 0
    saved_ms: int = 0
    progress_ppm: int = 0
    array: int | None = None
    index: int | None = None
    after: tuple[int, ...] = ()
    after_any: tuple[int, ...] = ()
    retries: int = 0
    failures: int = 0

    @property
    def outcome(self) -> str | None:
        """The name of the state it ended in, or None while it has none."""
        return self.state.value if self.state.ended else None

    def moved(self, state: JobState, **changes: Any) -> Job:
        """Return the job in its next state.

        Raises
        ------
        IllegalTransition
            If `state` may not follow the present one.
        """
        _allow(f"job {self.id}", JOB_TRANSITIONS, self.state, state)
        return replace(self, state=state, **changes)


@dataclass(frozen=True)
class ArrayRecord:
    """Jobs that differ in one number only; its own number is from the sequence of theirs.

    `tasks` are the numbers of all tasks, `rest` those of the tasks that are no jobs yet: they become jobs as
    earlier ones start, like the `first` one, with the time limit `limit_s`. At most `limit` run at once.
    `held` says why the rest is held back, `cancelled` why it will never run.
    """

    id: int
    owner: str
    submitted: int
    tasks: tuple[int, ...]
    rest: tuple[int, ...]
    limit: int | None
    limit_s: int
    first: int
    key: str | None
    held: str = ""
    cancelled: str = ""


@dataclass(frozen=True)
class LeaseRecord:
    """The durable grant of cards, CPUs and memory to one attempt of a job, or to one session.

    `work` is the job's or session's number; `boot_id` names the boot it was granted in.
    `start` and `end` (hard end) count from the request until the work is known to run.
    `charge_milli` is the price of the priority class at the time of the grant (1000 = 1).

    `asked` is when its work was asked to leave, with `grace_s` to do so; `cause` why it was, if for others,
    and `taker` the work that gets the room.
    """

    id: int
    work: int
    kind: Kind
    attempt: int
    owner: str
    group: str
    priority: str
    request: Request
    placement: Placement
    mode: str
    charge_milli: int
    resumable: bool
    state: LeaseState
    boot_id: str
    requested: int
    start: int
    end: int
    freed: int | None = None
    grace_s: int = 0
    asked: int | None = None
    cause: StopCause | Literal[""] = ""
    taker: int | None = None

    @property
    def key(self) -> str:
        """The attempt that runs on it, as engines name it: ``"<work>/<attempt>"``."""
        return f"{self.work}/{self.attempt}"

    @property
    def live(self) -> bool:
        """Whether it occupies its resources."""
        return self.state is not LeaseState.FREE

    @property
    def latest(self) -> int:
        """When its work must have left: at its hard end, or at the end of its grace once it was asked."""
        return self.end if self.asked is None else min(self.end, self.asked + self.grace_s)

    @property
    def whole(self) -> bool:
        """Whether its cards are shared with nobody."""
        return self.request.gpus > 0

    def moved(self, state: LeaseState, **changes: Any) -> LeaseRecord:
        """Return the lease in its next state.

        Raises
        ------
        IllegalTransition
            If `state` may not follow the present one.
        """
        _allow(f"lease {self.id}", LEASE_TRANSITIONS, self.state, state)
        return replace(self, state=state, **changes)

    def released(self, now: int, *, free: bool) -> LeaseRecord:
        """Return the lease being given back: free if its processes are confirmed gone."""
        releasing = self if self.state is LeaseState.RELEASING else self.moved(LeaseState.RELEASING)
        return releasing.moved(LeaseState.FREE, freed=now) if free else releasing


@dataclass(frozen=True)
class NewSession:
    """Interactive work that asks for a lease.

    `pid` and `starttime` name the process it lives with; a notebook server of a Hub has `server`,
    ``"<user>/<server name>"``, instead.
    """

    owner: str
    group: str
    name: str
    request: Request
    limit_s: int
    priority: str = "normal"
    pid: int | None = None
    starttime: int | None = None
    server: str | None = None


@dataclass(frozen=True)
class SessionRecord:
    """One session; its number comes from the same sequence as those of jobs."""

    id: int
    owner: str
    group: str
    name: str
    request: Request
    limit_s: int
    priority: str
    pid: int | None
    starttime: int | None
    boot_id: str
    state: SessionState
    submitted: int
    started: int | None = None
    ended: int | None = None
    reason: str = ""
    lease: int | None = None
    server: str | None = None

    def moved(self, state: SessionState, **changes: Any) -> SessionRecord:
        """Return the session in its next state.

        Raises
        ------
        IllegalTransition
            If `state` may not follow the present one.
        """
        _allow(f"session {self.id}", SESSION_TRANSITIONS, self.state, state)
        return replace(self, state=state, **changes)


@dataclass(frozen=True)
class CardRecord:
    """A card the pool owns, so that no placement can exceed it."""

    uuid: str
    node: str
    index: int
    model: str
    memory_mib: int


@dataclass(frozen=True)
class StartOrder:
    """One start of a plan: which job, where, in which sharing mode, at which price (1000 = 1)."""

    job: int
    placement: Placement
    mode: str
    charge_milli: int = 1000


@dataclass(frozen=True)
class Note:
    """A sentence worth keeping about a job or session."""

    at: int
    work: int
    text: str


@dataclass(frozen=True)
class Move:
    """A promise that moved later, when that happened, and the named cause."""

    at: int
    work: int
    was: int
    now: int
    cause: str


def _allow(what: str, table: Mapping[Any, frozenset[Any]], present: Enum, following: Enum) -> None:
    if following not in table[present]:
        raise IllegalTransition(f"{what} is {present.value}: it cannot become {following.value}.")
