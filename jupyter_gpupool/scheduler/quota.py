"""What a group is owed, holds, may reach and may lend.

Owns: the quota tree's algebra and what a request is charged. All amounts are integers, of one
resource at a time: ``gpu_milli``, ``gpu_milli.<type>``, ``cpus_milli``, ``memory_mib``.
Never: who comes first (see `ranking`), nor when something frees (see `timeline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jupyter_gpupool.scheduler.model import Group, Lease, Mib, Quota, Request

POOL = "pool"
ROOT = ""  # above all groups: also above "pool", which is a group's name where users of none hold something
GPU = "gpu_milli"
CPUS = "cpus_milli"
COUNT = "count"
MEMORY = "memory_mib"
UNBOUNDED = 1 << 62


def effective(groups: Mapping[str, Group]) -> dict[str, Group]:
    """Return the groups as they are applied: one that names no cards is owed none, and may borrow them."""
    return {name: group if GPU in group.quota.quota else _owed_none(group) for name, group in groups.items()}


def _owed_none(group: Group) -> Group:
    return replace(group, quota=replace(group.quota, quota={GPU: 0, **group.quota.quota}))


def is_type(model: str, type_: str) -> bool:
    """Say whether a card of `model` (``NVIDIA A100-SXM4-80GB``) is of a type (``a100``)."""
    return type_.casefold() in model.casefold()


def card_need(request: Request, card_mib: Mib) -> Mib:
    """Return the MiB that `request` takes of one card of `card_mib`: all of it for whole cards."""
    if request.gpus:
        return card_mib
    if request.share:
        return card_mib * request.share[0] // request.share[1]
    return request.gpu_mib


def gpu_charge(request: Request, card_mib: Mib) -> int:
    """Return the milli-GPU charged: 1000 a card, 1000·m//n a policy slice, else ⌈1000·MiB/card⌉."""
    if request.gpus:
        return 1000 * request.gpus
    if request.share:
        return 1000 * request.share[0] // request.share[1]
    return -(-1000 * request.gpu_mib // card_mib)


def amount(resource: str, request: Request, gpu_milli: int, model: str) -> int:
    """Return what a request placed on cards of `model` takes of `resource` (``count``: one)."""
    if resource == COUNT:
        return 1
    if resource == GPU:
        return gpu_milli
    if resource == CPUS:
        return request.cpus_milli
    if resource == MEMORY:
        return request.memory_mib
    return gpu_milli if gpu_milli and is_type(model, resource.removeprefix(GPU + ".")) else 0


def held(leases: Iterable[Lease], models: Mapping[str, str], resource: str) -> dict[str, int]:
    """Sum what the leases of each group hold of `resource`; `models` maps a card's UUID to its model."""
    sums: dict[str, int] = {}
    for lease in leases:
        cards = lease.placement.gpus
        model = models.get(cards[0].uuid, "") if cards else ""
        taken = amount(resource, lease.request, lease.placement.gpu_milli, model)
        sums[lease.group] = sums.get(lease.group, 0) + taken
    return sums


class QuotaTree:
    """What groups own, keep, lend and may reach of one resource (Kueue's algebra, in integers).

    Its nodes are the groups that name the resource in their quota, limit or lend. Another group counts in
    the nearest one above it, and nowhere if there is none.

    Parameters
    ----------
    groups
        The groups; one without a known parent hangs under the root.
    total
        What the pool has; the root owns what no quota names (never less than 0).
    """

    def __init__(self, groups: Mapping[str, Group], resource: str, total: int) -> None:
        self._resource = resource
        self._total = total
        self._groups = {name: group.quota for name, group in groups.items() if _names(group.quota, resource)}
        self._guests = {
            name: self._nearest(group.parent, groups)
            for name, group in groups.items()
            if name not in self._groups
        }
        self._parent = {name: self._nearest(groups[name].parent, groups) for name in self._groups}
        self._children: dict[str, list[str]] = {}
        for name, parent in self._parent.items():
            self._children.setdefault(parent, []).append(name)
        self._subtree: dict[str, int] = {}
        self._owed = sum(quota.quota.get(resource, 0) for quota in self._groups.values())
        self._keeps = any(quota.lend and resource in quota.lend for quota in self._groups.values())
        self.rooted = self._keeps and self.subtree(ROOT) < total

    def home(self, group: str) -> str:
        """Return the node in which what `group` takes is counted; the root: it is counted nowhere."""
        return group if group in self._groups else self._guests[group]

    def members(self, name: str) -> Iterator[str]:
        """Yield the groups that count in a node: itself and those that do not name the resource."""
        yield name
        yield from (guest for guest, home in self._guests.items() if home == name)

    def children(self, name: str) -> Sequence[str]:
        """Return the nodes right below one."""
        return self._children.get(name, ())

    def upward(self, name: str) -> list[str]:
        """Return a node and those above it that can ever be in the way.

        The root is only where something is kept from it: it has as much as the pool otherwise.
        """
        found = []
        while name != ROOT:
            found.append(name)
            name = self._parent[name]
        return [*found, ROOT] if self.rooted and found else found

    def parent(self, name: str) -> str:
        """Return the node above one that is not the root."""
        return self._parent[name]

    def subtree(self, name: str) -> int:
        """Return what a node owns with what those below it lend."""
        found = self._subtree.get(name)
        if found is None:
            if name == ROOT and not self._keeps:
                lent = self._owed
            else:
                lent = sum(self.subtree(child) - self.local(child) for child in self.children(name))
            found = self._subtree[name] = self.quota(name) + lent
        return found

    def quota(self, name: str) -> int:
        """Return what a node owns itself."""
        if name == ROOT:
            return max(0, self._total - self._owed)
        return self._groups[name].quota.get(self._resource, 0) if name in self._groups else 0

    def local(self, name: str) -> int:
        """Return what a node keeps: it is never lent."""
        lend = (self._groups[name].lend or {}).get(self._resource) if name != ROOT else None
        return 0 if lend is None else max(0, self.subtree(name) - lend)

    def limit(self, name: str) -> int:
        """Return the most that a node may reach by borrowing."""
        if name == ROOT:
            return self.subtree(ROOT)
        limit = (self._groups[name].limit or {}).get(self._resource)
        return UNBOUNDED if limit is None else limit

    def usage(self, own: Mapping[str, int]) -> dict[str, int]:
        """Return what each node uses: what is its own, and what those below it take above what they keep.

        `own` are amounts by group.
        """
        used: dict[str, int] = {}
        for name in self._children_first():
            mine = sum(own.get(member, 0) for member in self.members(name)) if name != ROOT else 0
            above = (max(0, used[child] - self.local(child)) for child in self.children(name))
            used[name] = mine + sum(above)
        return used

    def potential(self, name: str) -> int:
        """Return the most that a node could ever hold, with nobody else about."""
        if name == ROOT:
            return self.subtree(ROOT)
        return min(self.limit(name), self.local(name) + self.potential(self._parent[name]))

    def _children_first(self) -> list[str]:
        order = [ROOT]
        for name in order:
            order.extend(self.children(name))
        return order[::-1]

    def _nearest(self, name: str, groups: Mapping[str, Group]) -> str:
        while name != POOL and name in groups:
            if name in self._groups:
                return name
            name = groups[name].parent
        return ROOT


def _names(quota: Quota, resource: str) -> bool:
    return any(named and resource in named for named in (quota.quota, quota.limit, quota.lend))
