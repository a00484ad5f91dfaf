"""What a group is owed, holds, may reach and may lend.

Owns: the quota tree's algebra and what a request is charged. All amounts are integers, of one
resource at a time: ``gpu_milli``, ``gpu_milli.<type>``, ``cpus_milli``, ``memory_mib``.
Never: who comes first (see `ranking`), nor when something frees (see `timeline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jupyter_gpupool.scheduler.model import Group, Lease, Mib, Quota, Request

POOL = "pool"
GPU = "gpu_milli"
CPUS = "cpus_milli"
COUNT = "count"
MEMORY = "memory_mib"
UNBOUNDED = 1 << 62


def effective(groups: Mapping[str, Group]) -> dict[str, Group]:
    """Return the groups as this version applies them: a group reaches its quota and lends nothing.

    A group that names no GPUs is owed none; CPUs and memory that it does not name are not counted.
    """
    nothing = dict.fromkeys({GPU, *(name for group in groups.values() for name in group.quota.quota)}, 0)
    return {name: _closed(group, nothing) for name, group in groups.items()}


def _closed(group: Group, nothing: Mapping[str, int]) -> Group:
    owed = group.quota.quota
    named = owed if GPU in owed else {GPU: 0, **owed}
    return Group(group.name, group.parent, Quota(named, named, nothing), group.weight, group.user)


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
    """The algebra of one resource over the tree of groups (Kueue's, in integers).

    Parameters
    ----------
    groups
        The groups; one without a known parent hangs under the implicit root ``pool``.
    resource
        The resource that all amounts are of.
    total
        What the pool has of it; the root owns what no quota names (never less than 0).
    """

    def __init__(self, groups: Mapping[str, Group], resource: str, total: int) -> None:
        self._parent = {g.name: g.parent if g.parent in groups else POOL for g in groups.values()}
        self._children: dict[str, list[str]] = {POOL: []}
        for name, parent in self._parent.items():
            self._children.setdefault(name, [])
            self._children.setdefault(parent, []).append(name)
        quota = {name: group.quota.quota.get(resource, 0) for name, group in groups.items()}
        quota[POOL] = max(0, total - sum(quota.values()))
        self.subtree: dict[str, int] = {}
        self.local: dict[str, int] = {POOL: 0}
        self._may_borrow: dict[str, int] = {}
        self._upward = self._children_first()
        for name in self._upward:
            lent = sum(self.subtree[child] - self.local[child] for child in self._children[name])
            self.subtree[name] = quota[name] + lent
            if name != POOL:
                lend = (groups[name].quota.lend or {}).get(resource)
                limit = (groups[name].quota.limit or {}).get(resource)
                self.local[name] = 0 if lend is None else max(0, self.subtree[name] - lend)
                self._may_borrow[name] = UNBOUNDED if limit is None else limit - self.subtree[name]

    def usage(self, own: Mapping[str, int]) -> dict[str, int]:
        """Return each node's usage: its own and what its children use above what they keep for themselves."""
        used: dict[str, int] = {}
        for name in self._upward:
            above = sum(max(0, used[child] - self.local[child]) for child in self._children[name])
            used[name] = own.get(name, 0) + above
        return used

    def available(self, name: str, own: Mapping[str, int]) -> int:
        """Return what `name` could still take; negative after its quota was lowered below its usage."""
        return self._available(name, self.usage(own))

    def potential(self, name: str) -> int:
        """Return the most that `name` could ever hold, with nobody else about."""
        if name == POOL:
            return self.subtree[POOL]
        reach = self.local[name] + self.potential(self._parent[name])
        return min(self.subtree[name] + self._may_borrow[name], reach)

    def _available(self, name: str, used: Mapping[str, int]) -> int:
        if name == POOL:
            return self.subtree[POOL] - used[POOL]
        local, subtree = self.local[name], self.subtree[name]
        shared = subtree - local - max(0, used[name] - local) + self._may_borrow[name]
        return max(0, local - used[name]) + min(self._available(self._parent[name], used), shared)

    def _children_first(self) -> list[str]:
        order = [POOL]
        for name in order:
            order.extend(self._children[name])
        return order[::-1]
