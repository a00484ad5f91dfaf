"""The pool as the scheduler sees it, apart from the work: policy and cards in its words.

Owns: the translation of a policy and a pool's hardware into the scheduler's types. It is made again only
when one of them changes; service and simulator plan with it alike. Never: a queue, a lease, a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jupyter_gpupool.devices.base import Pool
from jupyter_gpupool.policy import model as policy_model
from jupyter_gpupool.policy.calendar import windows
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import (
    Gpu,
    Group,
    Lease,
    Node,
    Partition,
    Placement,
    PriorityClass,
    Promise,
    Quota,
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

    def snapshot(
        self,
        waiting: tuple[Work, ...],
        leases: tuple[Lease, ...],
        promises: tuple[Promise, ...],
        usage: Usage,
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
        )

    def next_edge(self, now: int) -> int | None:
        """Return the next moment at which a window opens or closes."""
        edges = (edge for spans in self.windows.values() for span in spans for edge in span if edge > now)
        return min(edges, default=None)

    def cards_of(self, placement: Placement) -> dict[str, Gpu]:
        """Return the cards of a placement that are still there, by UUID."""
        uuids = {share.uuid for share in placement.gpus}
        return {gpu.uuid: gpu for gpu in self.gpus if gpu.uuid in uuids}

    def card_mib(self, placement: Placement) -> int:
        """Return the memory of a whole card of a placement, in MiB; 0 without a card."""
        return min((gpu.memory_mib for gpu in self.cards_of(placement).values()), default=0)


def frame_of(
    policy: Policy, pool: Pool, health: Mapping[str, str], now: int, slots: int | None, host: str
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
    return Frame(
        nodes=tuple(Node(node.name, node.cpus_milli, node.memory_mib) for node in pool.nodes()),
        gpus=_gpus(policy, pool, health),
        partitions={name: _partition(name, found) for name, found in policy.partitions.items()},
        groups={name: _group(name, found) for name, found in policy.groups.items()},
        users={name: _limits(found) for name, found in policy.users.items()},
        priorities={name: _priority(name, found) for name, found in policy.priorities.items()},
        windows={
            name: windows(calendar, policy.zone, now, now + HORIZON_S)
            for name, calendar in policy.calendars.items()
        },
        settings=Settings(promises=policy.jobs.promises, slots=slots, host=host, zone=policy.zone),
        made=now,
    )


def _gpus(policy: Policy, pool: Pool, health: Mapping[str, str]) -> tuple[Gpu, ...]:
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
    return Partition(name, frozenset(found.kinds), found.cpu_overcommit)


def _group(name: str, found: policy_model.Group) -> Group:
    """Return a group that may use just what it is owed: it borrows nothing, and lends nothing."""
    owed = found.quota.amounts()
    none = MappingProxyType(dict.fromkeys(owed, 0))
    return Group(name, found.parent, Quota(owed, limit=owed, lend=none), found.weight, _limits(found.user))


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
