"""What the groups of a pool own.

Owns: the groups as they are applied, those included that only claims name, the resources that they are owed,
and a quota tree of each. Never: what is held.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from jupyter_gpupool.scheduler import quota
from jupyter_gpupool.scheduler.model import Group, Lease, Quota, Snapshot, Work


class Estate:
    """What is owned in one snapshot, and in those `of` the same groups and machines."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.groups = quota.effective(snapshot.groups)
        claiming = _groups_of(snapshot.waiting) | _groups_of(snapshot.leases)
        for name in claiming - self.groups.keys():
            parent = "" if name == quota.POOL else quota.POOL
            self.groups[name] = Group(name, parent, Quota({quota.GPU: 0}, limit={quota.GPU: 0}))
        named = {
            name
            for group in self.groups.values()
            for amounts in (group.quota.quota, group.quota.limit, group.quota.lend)
            for name in amounts or ()
        }
        self.resources = [quota.COUNT, *sorted(named)]
        self.trees = {name: quota.QuotaTree(self.groups, name, _total(snapshot, name)) for name in named}
        self._chains: dict[str, tuple[str, ...]] = {}
        self.models = {gpu.uuid: gpu.model for gpu in snapshot.gpus}

    def of(self, snapshot: Snapshot, new: Iterable[Lease]) -> bool:
        """Say whether a later snapshot, in which these leases are new, is of the same groups and machines."""
        mine = self._snapshot
        return (
            mine.groups is snapshot.groups
            and mine.gpus is snapshot.gpus
            and mine.nodes is snapshot.nodes
            and mine.partitions is snapshot.partitions
            and self.groups.keys() >= _groups_of(snapshot.waiting) | _groups_of(new)
        )

    def upward(self, group: str) -> tuple[str, ...]:
        """Return a group and its ancestors below the pool, from the group up."""
        found = self._chains.get(group)
        if found is None:
            chain: list[str] = []
            name = group
            while name in self.groups:
                chain.append(name)
                name = self.groups[name].parent
            found = self._chains[group] = tuple(chain)
        return found


_group_of = attrgetter("group")


def _groups_of(claims: Iterable[Work | Lease]) -> set[str]:
    return {*map(_group_of, claims)}


def _total(snapshot: Snapshot, resource: str) -> int:
    """Return what the pool has of a resource; CPUs as often as a partition gives them out."""
    if resource == quota.CPUS:
        often = max((partition.cpu_overcommit_milli for partition in snapshot.partitions.values()), default=0)
        return sum(node.cpus_milli for node in snapshot.nodes) * often // 1000
    if resource == quota.MEMORY:
        return sum(node.memory_mib for node in snapshot.nodes)
    type_ = resource.removeprefix(quota.GPU).removeprefix(".")
    return 1000 * sum(quota.is_type(gpu.model, type_) for gpu in snapshot.gpus)
