"""What the service answers: the shape of every reply.

Owns: the typed dictionaries from which the OpenAPI document is made and that `views` fill. Times are ISO 8601
in UTC, sizes MiB, parts of GPUs and CPUs thousandths. Never: a value.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from jupyter_gpupool.service.grant_replies import BoostReply
from jupyter_gpupool.service.progress import ProgressReply


class RequestReply(TypedDict):
    """What work asks for."""

    gpus: int
    gpu_mib: int
    gpu_types: list[str]
    cpus_milli: int
    memory_mib: int


class WaitingReply(TypedDict):
    """Why something waits, what would clear it, and when it may start."""

    reason: str
    message: str
    clears: str
    position: int | None
    expected_start: str | None
    kind: Literal["promise", "estimate"] | None


class GpuShareReply(TypedDict):
    """Memory of one card."""

    uuid: str
    mib: int
    index: int | None
    node: str | None


class PlacementReply(TypedDict):
    """Where work runs, and how well it is kept apart from others."""

    nodes: list[str]
    gpus: list[GpuShareReply]
    mode: str
    isolation: str


class StopReply(TypedDict):
    """A time that a job was asked to leave for others; `taker` is the work that gets the room, if any."""

    cause: Literal["hand_back", "session", "reclaim", "preempt"]
    message: str
    taker: int | None
    asked_at: str | None
    leaves_by: str | None


class ArrayReply(TypedDict):
    """The tasks of an array.

    `tasks` are their numbers (``0-9``), `count` how many they are, at most `limit` of which run at once;
    `states` says how many are in which state.
    """

    tasks: str
    count: int
    limit: int | None
    states: dict[str, int]


class JobReply(TypedDict):
    """One job, or an array as a whole. Of another user's job, what only its owner may see is null.

    `array` is there for an array; its other facts are those of its tasks together. A task of one has
    `array_id` and `array_index`; while it waits behind others of its array, its `id` is still the array's.
    """

    id: int
    name: str | None
    kind: str
    state: str
    user: str | None
    group: str
    priority: str
    partition: str | None
    request: RequestReply
    time_s: int
    grace_s: int
    window: str | None
    resumable: bool
    submitted_at: str | None
    started_at: str | None
    ended_at: str | None
    expires_at: str | None
    attempt: int
    exit_code: int | None
    signal: int | None
    outcome: str | None
    reason: str | None
    waiting: WaitingReply | None
    placement: PlacementReply | None
    progress: ProgressReply | None
    diagnosis: dict[str, Any] | None
    folder: str | None
    out: str | None
    log: str | None
    workdir: str | None
    stops: list[StopReply]
    warnings: list[str]
    simulated: bool
    array: ArrayReply | None
    array_id: int | None
    array_index: int | None
    after: list[int]
    after_any: list[int]
    retries: int
    failures: int
    notify: list[str]


class JobsReply(TypedDict):
    """The user's jobs, newest first."""

    jobs: list[JobReply]


class QueueReply(TypedDict):
    """What waits, in rank order, and what runs."""

    waiting: list[JobReply]
    running: list[JobReply]


class AlternativeReply(TypedDict):
    """When the same work would start with another priority or window."""

    priority: str
    window: str | None
    expected_start: str | None


class DryRunReply(TypedDict):
    """Where and when work would start, of `tasks` the first; nothing was submitted."""

    tasks: int
    would_start: str | None
    placement: PlacementReply | None
    reason: str | None
    message: str
    alternatives: list[AlternativeReply]


class LeaseReply(TypedDict):
    """One lease for interactive work; `environment` is what its processes should have set.

    `server` is the name of the Hub's server that it is for: empty = the user's default one, null = none.
    """

    id: int
    state: str
    user: str
    group: str
    name: str
    server: str | None
    pid: int | None
    request: RequestReply
    time_s: int
    submitted_at: str | None
    started_at: str | None
    ended_at: str | None
    expires_at: str | None
    waiting: WaitingReply | None
    placement: PlacementReply | None
    environment: dict[str, str]
    reason: str | None
    simulated: bool


class LeasesReply(TypedDict):
    """The user's leases."""

    leases: list[LeaseReply]


class WorkReply(TypedDict):
    """What an engine needs to run a server on its lease; `user` is the account, null = the engine's own."""

    key: str
    job: int
    attempt: int
    folder: str
    limit_s: int
    grace_s: int
    cpus_milli: int
    memory_mib: int
    user: str | None


class SpawnReply(TypedDict):
    """The lease of a server; `work` is there while it is held."""

    lease: LeaseReply
    work: WorkReply | None


class SliceReply(TypedDict):
    """One slice that a user of a group may choose.

    `state` says what would happen now: it is ``available``, it ``waits`` (`message` says for what,
    `expected_start` until when), or it is ``refused`` (`message` says why, with the numbers). `slice` and
    `partition` are what to ask for; `label` is for people.
    """

    slice: str
    partition: str | None
    label: str
    gpu_milli: int
    state: Literal["available", "waits", "refused"]
    message: str | None
    expected_start: str | None


class GroupChoicesReply(TypedDict):
    """What one group offers its user; GPUs in thousandths, a limit of null = none.

    `name` is null for a user of no group of the policy.
    """

    name: str | None
    used_milli: int
    limit_milli: int | None
    user_used_milli: int
    user_limit_milli: int | None
    user_sessions: int
    user_sessions_limit: int | None
    slices: list[SliceReply]


class FreeReply(TypedDict):
    """How much of a partition is free: whole cards nobody is on, and memory."""

    partition: str
    gpus: int
    idle_gpus: int
    memory_mib: int
    free_mib: int


class ChoicesReply(TypedDict):
    """What a user may choose for a server; `message` says what stands in the way of more."""

    user: str
    default_group: str | None
    groups: list[GroupChoicesReply]
    free: list[FreeReply]
    message: str | None
    simulated: bool


class ArtifactReply(TypedDict):
    """One file that a job left."""

    name: str
    size: int
    modified_at: str | None


class ArtifactsReply(TypedDict):
    """The files that a job left."""

    artifacts: list[ArtifactReply]


class MembershipReply(TypedDict):
    """A group of the user."""

    name: str
    parent: str


class WhoamiReply(TypedDict):
    """Who asks, and which pool answers."""

    user: str
    groups: list[MembershipReply]
    default_group: str | None
    admin: bool
    simulated: bool
    pool: str | None
    version: str


class UserQuotaReply(TypedDict):
    """What one user may hold in a group, and does."""

    limits: dict[str, int]
    used: dict[str, int]


class BudgetReply(TypedDict):
    """The GPU hours of a group in the present period: what it may use, with what is granted, and has used."""

    period: str
    gpu_hours: float
    spent_gpu_hours: float
    until: str | None


class LoanReply(TypedDict):
    """Cards that a group lends to another, or has from it (`group`), expected back by `until`.

    With `on_demand` their owner gets them back within the grace of the work there.
    """

    group: str
    gpus_milli: int
    until: str | None
    on_demand: bool


class GroupQuotaReply(TypedDict):
    """What a group is owed now, boosts included, and what it and those below it may reach and use."""

    name: str
    quota: dict[str, int]
    limit: dict[str, int] | None
    used: dict[str, int]
    user: UserQuotaReply
    over_since: str | None
    boosts: list[BoostReply]
    budget: BudgetReply | None
    lent: list[LoanReply]
    borrowed: list[LoanReply]


class QuotaReply(TypedDict):
    """The quota of a user's groups."""

    user: str
    groups: list[GroupQuotaReply]


class OnCardReply(TypedDict):
    """A lease on a card; of a job on a lent card, `lent_until` is when it must leave."""

    lease: int
    kind: str
    user: str | None
    group: str
    mib: int
    job: int | None
    lent_until: str | None


class StrangerReply(TypedDict):
    """A process on a card that belongs to no lease."""

    pid: int
    mib: int | None
    user: str | None
    command: str


class GpuReply(TypedDict):
    """One card and who is on it."""

    uuid: str
    index: int
    model: str
    memory_mib: int
    partition: str | None
    free_mib: int | None
    leases: list[OnCardReply]
    strangers: list[StrangerReply]
    available: bool
    because: str


class NodeReply(TypedDict):
    """One host and its cards."""

    name: str
    cpus_milli: int
    memory_mib: int
    available: bool
    because: str
    gpus: list[GpuReply]


PartitionReply = TypedDict(
    "PartitionReply", {"name": str, "for": list[str], "gpus": int, "slices": list[str]}
)


class PoolReply(TypedDict):
    """The whole pool."""

    simulated: bool
    describe: str
    nodes: list[NodeReply]
    partitions: list[PartitionReply]
    inactive: list[str]
    policy_error: str | None


class PastPolicyReply(TypedDict):
    """A policy that was in force."""

    name: str
    since: str | None
    text: str


class PolicyReply(TypedDict):
    """The policy in force, and what was before."""

    text: str
    source: str
    error: str | None
    inactive: list[str]
    warnings: list[str]
    history: list[PastPolicyReply]


class PolicyCheckReply(TypedDict):
    """What a good policy would change; `applied` says whether it is in force now."""

    applied: bool
    diff: list[str]
    over_quota: list[str]
    promises: list[str]
    inactive: list[str]
    warnings: list[str]


class HealthReply(TypedDict):
    """Whether the service works; what troubles it is only for those it knows."""

    status: Literal["ok", "degraded"]
    version: str
    troubles: NotRequired[list[str]]


class DoneReply(TypedDict):
    """It was done."""

    ok: bool
