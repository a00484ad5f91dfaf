"""The pool as the scheduler sees it, apart from the work: policy and cards in its words.

Owns: the translation of a policy and a pool's hardware into the scheduler's types. It is made again only
when one of them changes; service and simulator plan with it alike. Never: a queue, a lease, a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jupyter_gpupool.devices.base import Hardware, NodeInfo
from jupyter_gpupool.policy import model as policy_model
from jupyter_gpupool.policy.calendar import windows
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import (
    Budget,
    Gpu,
    Group,
    Lease,
    Lend,
    Node,
    Partition,
    Placement,
    PriorityClass,
    Promise,
    Quota,
    Reservation,
    Settings,
    Snapshot,
    Usage,
    UserLimits,
    Work,
)

HORIZON_S = 60 * 86400
"""How far ahead windows are known; every job is shorter."""
FRESH_S = 3600


@dataclass(frozen=True)
class Boost:
    """Extra quota over [start, end): for a group, or one `user` of it; taken from `giver`, if it names one.

    `amounts` have the keys of a `Quota`; of a user only the cards are bounded. Without a group nobody gets
    what the giver is not owed meanwhile.
    """

    group: str | None
    amounts: Mapping[str, int]
    start: int
    end: int
    user: str | None = None
    giver: str | None = None


@dataclass(frozen=True)
class Grants:
    """What people have granted beside the policy: all with an end, but drains, which last until undone.

    `drains` map a node's name to why it takes no new work.
    """

    boosts: tuple[Boost, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    drains: Mapping[str, str] = field(default_factory=dict)

    def edges(self) -> list[int]:
        """Return the moments at which one of them begins or ends."""
        spans = [(found.start, found.end) for found in self.boosts]
        spans += [(found.start, found.end) for found in self.reservations]
        return [edge for span in spans for edge in span]


NO_GRANTS = Grants()


@dataclass(frozen=True)
class Frame:
    """All of a scheduler's snapshot that neither a submission nor an end changes."""

    nodes: tuple[Node, ...]
    gpus: tuple[Gpu, ...]
    partitions: Mapping[str, Partition]
    groups: Mapping[str, Group]
    users: Mapping[str, UserLimits]
    priorities: Mapping[str, PriorityClass]
    windows: Mapping[str, tuple[tuple[int, int], ...]]
    settings: Settings
    made: int
    reservations: tuple[Reservation, ...] = ()
    edges: tuple[int, ...] = ()

    def snapshot(
        self,
        waiting: tuple[Work, ...],
        leases: tuple[Lease, ...],
        promises: tuple[Promise, ...],
        usage: Usage,
        budgets: Mapping[str, Budget] | None = None,
    ) -> Snapshot:
        """Return the pool with what waits (by submit time, then id) and what is held in it."""
        return Snapshot(
            nodes=self.nodes,
            gpus=self.gpus,
            partitions=self.partitions,
            groups=self.groups,
            users=self.users,
            priorities=self.priorities,
            windows=self.windows,
            waiting=waiting,
            leases=leases,
            promises=promises,
            usage=usage,
            settings=self.settings,
            budgets=budgets or {},
            reservations=self.reservations,
        )

    def next_edge(self, now: int) -> int | None:
        """Return the next moment at which a window opens or closes, or a grant begins or ends."""
        edges = (edge for spans in self.windows.values() for span in spans for edge in span)
        return min((edge for edge in (*edges, *self.edges) if edge > now), default=None)

    def outdated(self, now: int) -> bool:
        """Whether an edge has passed since it was made, or windows are not known far enough ahead."""
        edge = self.next_edge(self.made)
        return now - self.made > FRESH_S or (edge is not None and edge <= now)

    def cards_of(self, placement: Placement) -> dict[str, Gpu]:
        """Return the cards of a placement that are still there, by UUID."""
        uuids = {share.uuid for share in placement.gpus}
        return {gpu.uuid: gpu for gpu in self.gpus if gpu.uuid in uuids}

    def card_mib(self, placement: Placement) -> int:
        """Return the memory of a whole card of a placement, in MiB; 0 without a card."""
        return min((gpu.memory_mib for gpu in self.cards_of(placement).values()), default=0)


def frame_of(
    policy: Policy,
    pool: Hardware,
    health: Mapping[str, str],
    now: int,
    slots: int | None,
    host: str,
    grants: Grants = NO_GRANTS,
) -> Frame:
    """Translate.

    Parameters
    ----------
    health
        Of each card (by UUID): "" when it can take work, else the sentence that says why not.
    slots
        How many jobs the host can run at once where the cards are only simulated; None = no bound.
    host
        The host's name, for the sentence about `slots`.
    """
    jobs = policy.jobs
    boosts = [boost for boost in grants.boosts if boost.start <= now < boost.end]
    groups = {name: _group(name, found) for name, found in policy.groups.items()}
    users = {name: _limits(found) for name, found in policy.users.items()}
    return Frame(
        nodes=tuple(_node(node, grants.drains) for node in pool.nodes()),
        gpus=_gpus(policy, pool, health),
        partitions={name: _partition(name, found) for name, found in policy.partitions.items()},
        groups=_boosted(groups, boosts),
        users=_boosted_users(users, groups, boosts),
        priorities={name: _priority(name, found) for name, found in policy.priorities.items()},
        windows={
            name: windows(calendar, policy.zone, now - _looks_back(policy), now + HORIZON_S)
            for name, calendar in policy.calendars.items()
        },
        settings=Settings(
            promises=jobs.promises,
            min_run_time=jobs.min_run_time,
            borrow_max_time=jobs.borrow_max_time,
            slots=slots,
            host=host,
            zone=policy.zone,
        ),
        made=now,
        reservations=tuple(found for found in grants.reservations if found.end > now),
        edges=tuple(sorted(grants.edges())),
    )


def _looks_back(policy: Policy) -> int:
    """Return how long ago a window may have ended that still matters, with time to use the frame."""
    settles = [found.lend.settle for found in policy.partitions.values() if found.lend is not None]
    return max(settles, default=0) + 2 * FRESH_S


def _node(found: NodeInfo, drains: Mapping[str, str]) -> Node:
    why = drains.get(found.name, "")
    return Node(found.name, found.cpus_milli, found.memory_mib, not why, why)


def _boosted(groups: Mapping[str, Group], boosts: Iterable[Boost]) -> dict[str, Group]:
    """Return the groups with what boosts add to their quotas now, and to the limits above them.

    What a group gives to one below it stays within its own limit, and within those above.
    """
    found = dict(groups)
    for boost in boosts:
        if boost.user is not None or boost.group not in (None, *found):
            continue
        giver = boost.giver if boost.giver in found else None
        unmoved = set(_upward(found, giver)) if giver else set()
        if boost.group is not None:
            for name in _upward(found, boost.group):
                if name not in unmoved:
                    found[name] = _reaching(found[name], boost.amounts)
            found[boost.group] = _owed(found[boost.group], boost.amounts, 1)
        if giver:
            found[giver] = _owed(found[giver], boost.amounts, -1)
    return found


def _boosted_users(
    users: Mapping[str, UserLimits], groups: Mapping[str, Group], boosts: Iterable[Boost]
) -> dict[str, UserLimits]:
    """Return the users' own limits with what boosts add to the cards of one user."""
    found = dict(users)
    for boost in boosts:
        if boost.user is None or boost.group is None or boost.group not in groups:
            continue
        own = found.get(boost.user, UserLimits())
        common = groups[boost.group].user.gpu_milli
        cards = common if own.gpu_milli is None else own.gpu_milli
        if cards is not None:
            found[boost.user] = replace(own, gpu_milli=cards + boost.amounts.get("gpu_milli", 0))
    return found


def _upward(groups: Mapping[str, Group], name: str) -> Iterator[str]:
    """Yield a group and those above it."""
    while name in groups:
        yield name
        name = groups[name].parent


def _owed(group: Group, amounts: Mapping[str, int], sign: int) -> Group:
    owed = {**group.quota.quota}
    for resource, amount in amounts.items():
        owed[resource] = max(0, owed.get(resource, 0) + sign * amount)
    return replace(group, quota=replace(group.quota, quota=owed))


def _reaching(group: Group, amounts: Mapping[str, int]) -> Group:
    limit = group.quota.limit
    if limit is None:
        return group
    raised = {resource: amount + amounts.get(resource, 0) for resource, amount in limit.items()}
    return replace(group, quota=replace(group.quota, limit=raised))


def _gpus(policy: Policy, pool: Hardware, health: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the cards of some partition; a card that the policy does not name takes no work."""
    return tuple(
        Gpu(
            card.uuid,
            card.node,
            card.index,
            card.model,
            card.memory_mib,
            partition,
            card.link_group,
            available=not health.get(card.uuid),
            unavailable_because=health.get(card.uuid, ""),
        )
        for card in pool.cards()
        if (partition := policy.partition_of(card)) is not None
    )


def _partition(name: str, found: policy_model.Partition) -> Partition:
    return Partition(name, frozenset(found.kinds), found.cpu_overcommit, _lend(found))


def _lend(found: policy_model.Partition) -> Lend | None:
    lend = found.lend
    if lend is None:
        return None
    shares = [cut.share for cut in found.slices if cut.share]
    smallest = min(shares, key=lambda share: share[0] / share[1], default=(1, 1))
    return Lend(lend.to, lend.during, lend.by_day, lend.headroom, smallest, lend.settle)


def _group(name: str, found: policy_model.Group) -> Group:
    limit = None if found.limit is None else found.limit.amounts()
    lend = None if found.lend is None else found.lend.amounts()
    quota = Quota(found.quota.amounts(), limit=limit, lend=lend)
    return Group(name, found.parent, quota, found.weight, _limits(found.user))


def _limits(found: policy_model.UserLimits) -> UserLimits:
    return UserLimits(
        gpu_milli=found.gpus,
        sessions=found.sessions,
        session_time=found.session_time,
        running_jobs=found.running_jobs,
        queued_jobs=found.queued_jobs,
        job_time=found.job_time,
    )


def _priority(name: str, found: policy_model.Priority) -> PriorityClass:
    groups = None if found.groups is None else frozenset(found.groups)
    return PriorityClass(name, found.value, found.charge, groups, found.running_jobs, found.preempts)
