"""The values the scheduler reads and writes.

Owns: the plain, immutable description of a pool at one moment (`Snapshot`) and of what
should happen next (`Plan`). Never: a clock, a file, a socket, a database, pydantic.

Units are integers throughout: MiB, milli-GPU, milli-CPU, whole seconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Literal

Seconds = int
Mib = int
Kind = Literal["session", "job"]


class Reason(StrEnum):
    """Why something waits: the first that holds, in this order."""

    HELD = "Held"
    INVALID = "Invalid"
    NO_SUCH_GPU = "NoSuchGpu"
    EXCEEDS_LIMIT = "ExceedsLimit"
    DEPENDENCY = "Dependency"
    OUTSIDE_WINDOW = "OutsideWindow"
    USER_LIMIT = "UserLimit"
    ARRAY_LIMIT = "ArrayLimit"
    BACK_OFF = "BackOff"
    UNAVAILABLE = "Unavailable"
    GROUP_QUOTA = "GroupQuota"
    BUDGET = "Budget"
    RECLAIMING = "Reclaiming"
    PRIORITY = "Priority"
    RESOURCES = "Resources"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical (or simulated) card."""

    uuid: str
    node: str
    index: int
    model: str
    memory_mib: Mib
    partition: str
    link_group: str = ""
    available: bool = True
    unavailable_because: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One host with the CPUs and memory that go with its cards."""

    name: str
    cpus_milli: int
    memory_mib: Mib
    available: bool = True
    unavailable_because: str = ""


@dataclass(frozen=True, slots=True)
class Lend:
    """How a partition for sessions lends idle cards to the jobs of another one.

    `window` names the calendar in whose windows all idle cards are lent. With `by_day` resumable jobs get
    them at other times too, from `settle` seconds after a window's end, beyond `headroom` smallest slices,
    each of `slice` = (m, n), m/n of a card. At a window's end every job leaves.
    """

    to: str
    window: str
    by_day: bool = False
    headroom: int = 0
    slice: tuple[int, int] = (1, 1)
    settle: Seconds = 3600


@dataclass(frozen=True, slots=True)
class Partition:
    """A named set of GPUs with a purpose."""

    name: str
    kinds: frozenset[Kind]
    cpu_overcommit_milli: int = 1000
    lend: Lend | None = None

    def serves(self, kind: Kind) -> bool:
        """Say whether work of `kind` runs here, if only on lent cards."""
        return kind in self.kinds or (kind == "job" and self.lend is not None)


@dataclass(frozen=True, slots=True)
class Quota:
    """What a group is owed, may reach and may lend; `None` = not named (see DESIGN of the quota tree).

    Keys of the mappings: ``gpu_milli``, ``gpu_milli.<type>``, ``cpus_milli``, ``memory_mib``.
    """

    quota: Mapping[str, int]
    limit: Mapping[str, int] | None = None
    lend: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU time that a group, with all below it, may use in a period; amounts in milli-GPU seconds, charged.

    `spent` is of the present period until now, running work included. `ends` are the ends of the present
    period and of those that follow.
    """

    capacity: int
    spent: int
    ends: tuple[Seconds, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Cards set apart over [start, end): for `groups` and `users`, or for nobody (maintenance)."""

    id: int
    gpus: frozenset[str]
    start: Seconds
    end: Seconds
    groups: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    because: str = ""

    def serves(self, group: str, user: str) -> bool:
        """Say whether work of this group and user may use the cards."""
        return group in self.groups or user in self.users


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What one user of a group may hold at once; `None` = no limit."""

    gpu_milli: int | None = None
    sessions: int | None = None
    session_time: Seconds | None = None
    running_jobs: int | None = None
    queued_jobs: int | None = None
    job_time: Seconds | None = None

    def over(self, general: UserLimits) -> UserLimits:
        """Return these limits, and where they say nothing the general ones."""
        return UserLimits(
            gpu_milli=general.gpu_milli if self.gpu_milli is None else self.gpu_milli,
            sessions=general.sessions if self.sessions is None else self.sessions,
            session_time=general.session_time if self.session_time is None else self.session_time,
            running_jobs=general.running_jobs if self.running_jobs is None else self.running_jobs,
            queued_jobs=general.queued_jobs if self.queued_jobs is None else self.queued_jobs,
            job_time=general.job_time if self.job_time is None else self.job_time,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A node of the quota tree; `parent` "pool" is the implicit root."""

    name: str
    parent: str
    quota: Quota
    weight: int = 1
    user: UserLimits = UserLimits()


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A priority with its price and its restrictions."""

    name: str
    value: int
    charge_milli: int = 1000
    groups: frozenset[str] | None = None
    running_jobs: int | None = None
    preempts: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What one piece of work asks for.

    Exactly one of: `gpus` whole cards; `gpu_mib` of one card; neither (CPU only).
    `share` = (m, n) remembers a policy slice m/n of a card, charged 1000*m//n.
    """

    gpus: int = 0
    gpu_mib: Mib = 0
    share: tuple[int, int] | None = None
    gpu_types: tuple[str, ...] = ()
    gpu_compute: int | None = None
    cpus_milli: int = 1000
    memory_mib: Mib = 0
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A job or session that waits; no two of them, of whichever kind, have the same `id`.

    `after` names the work that must have ended before and has not. `grace` is what it gets between being
    asked to stop and its end. Of the works of one `array` at most `array_limit` run at once.
    """

    id: int
    kind: Kind
    user: str
    group: str
    priority: str
    submitted: Seconds
    limit: Seconds
    request: Request
    resumable: bool = False
    held: str = ""
    invalid: str = ""
    not_before: Seconds = 0
    window: str | None = None
    age: Seconds = 0
    after: tuple[int, ...] = ()
    grace: Seconds = 0
    array: int | None = None
    array_limit: int | None = None


@dataclass(frozen=True, slots=True)
class GpuShare:
    """MiB of one card."""

    uuid: str
    mib: Mib


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one piece of work goes: cards, and the node(s) they are in."""

    nodes: tuple[str, ...]
    gpus: tuple[GpuShare, ...]
    gpu_milli: int
    partition: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A grant that occupies resources until `end` (its hard end) or until it is free.

    `asked` is when its work was asked to stop for others: it leaves within `grace` of that.
    """

    id: int
    work: int
    kind: Kind
    user: str
    group: str
    priority: str
    request: Request
    placement: Placement
    start: Seconds
    end: Seconds
    whole: bool
    resumable: bool = False
    grace: Seconds = 0
    asked: Seconds | None = None
    array: int | None = None
    array_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """A reserved expected start: it moves later only for a named cause."""

    work: int
    start: Seconds
    placement: Placement
    made: Seconds


@dataclass(frozen=True, slots=True)
class Usage:
    """Decayed usage in nano-GPU, as of the snapshot's `now`."""

    by_group: Mapping[str, int] = field(default_factory=dict)
    by_user: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (group, user)


@dataclass(frozen=True, slots=True)
class Settings:
    """Numbers of the policy that the scheduler needs."""

    promises: int = 100
    promises_per_group: int = 10
    age_step: Seconds = 7 * 86400
    min_run_time: Seconds = 600
    borrow_max_time: Seconds = 4 * 3600
    slots: int | None = None  # how many jobs the host can run at once (simulated pools)
    host: str = ""  # the host that `slots` names
    zone: tzinfo = UTC  # in which times are written


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that `plan` may know. `waiting` is sorted by (submitted, id)."""

    nodes: tuple[Node, ...]
    gpus: tuple[Gpu, ...]
    partitions: Mapping[str, Partition]
    groups: Mapping[str, Group]
    users: Mapping[str, UserLimits]  # per-user overrides of the group's `user`
    priorities: Mapping[str, PriorityClass]
    windows: Mapping[str, tuple[tuple[Seconds, Seconds], ...]]  # UTC, sorted, disjoint; those just over too
    waiting: tuple[Work, ...]
    leases: tuple[Lease, ...]
    promises: tuple[Promise, ...] = ()
    usage: Usage = Usage()
    settings: Settings = Settings()
    budgets: Mapping[str, Budget] = field(default_factory=dict)  # by group
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Start this work now, there; `borrowed`: its group is then above what it is owed."""

    work: int
    placement: Placement
    borrowed: bool = False


StopCause = Literal["hand_back", "session", "reclaim", "preempt"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the work of a lease to stop, for others: it gets its grace, and is queued again.

    `taker` is the work that gets the room; None at a hand-back.
    """

    work: int
    lease: int
    cause: StopCause
    taker: int | None = None


@dataclass(frozen=True, slots=True)
class PromiseMove:
    """A promise that moved later, and the named cause."""

    work: int
    was: Seconds
    now: Seconds
    cause: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why one piece of work waits and when it may start.

    `facts` are the numbers behind the reason; `jupyter_gpupool.scheduler.reasons.explain`
    turns them into sentences, so that ten thousand texts are not written at every pass.
    """

    work: int
    reason: Reason
    facts: Mapping[str, object]
    position: int | None
    expected_start: Seconds | None
    promised: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What should happen now, and what is expected."""

    starts: tuple[Start, ...]
    promises: tuple[Promise, ...]
    moves: tuple[PromiseMove, ...]
    verdicts: Mapping[int, Verdict]  # empty when only the free slots were filled
    stops: tuple[Stop, ...] = ()
