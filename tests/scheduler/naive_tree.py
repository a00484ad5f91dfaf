"""The formulae of the quota tree, as they are written.

Owns: what groups own, use and may reach of one resource. Never: what is booked (`naive_pool`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from jupyter_gpupool.scheduler.model import Group

POOL = "pool"


class Tree:
    """What groups own, use and may reach of one resource, formula by formula."""

    def __init__(self, groups: Mapping[str, Group], resource: str, total: int) -> None:
        self.groups, self.resource, self.total = groups, resource, total
        self.named = [name for name in groups if self._names(name)]

    def _names(self, name: str) -> bool:
        quota = self.groups[name].quota
        return any(self.resource in (part or {}) for part in (quota.quota, quota.limit, quota.lend))

    def home(self, name: str) -> str:
        """Return the nearest group, from this one up, that names the resource."""
        while name in self.groups and name not in self.named:
            name = self.groups[name].parent
        return name if name in self.groups else POOL

    def parent(self, name: str) -> str:
        return self.home(self.groups[name].parent)

    def children(self, name: str) -> list[str]:
        return [child for child in self.named if self.parent(child) == name]

    def quota(self, name: str) -> int:
        if name == POOL:
            return max(0, self.total - sum(map(self.quota, self.named)))
        return self.groups[name].quota.quota.get(self.resource, 0)

    def subtree(self, name: str) -> int:
        return self.quota(name) + sum(self.subtree(c) - self.local(c) for c in self.children(name))

    def local(self, name: str) -> int:
        lend = (self.groups[name].quota.lend or {}).get(self.resource)
        return 0 if lend is None else max(0, self.subtree(name) - lend)

    def may_borrow(self, name: str) -> float:
        limit = (self.groups[name].quota.limit or {}).get(self.resource)
        return inf if limit is None else limit - self.subtree(name)

    def usage(self, name: str, held: Mapping[str, int]) -> int:
        own = sum(many for group, many in held.items() if self.home(group) == name and name != POOL)
        return own + sum(max(0, self.usage(c, held) - self.local(c)) for c in self.children(name))

    def available(self, name: str, held: Mapping[str, int]) -> float:
        subtree = self.subtree(name)
        if name == POOL:
            return subtree - self.usage(POOL, held)
        local, usage = self.local(name), self.usage(name, held)
        reach = subtree - local - max(0, usage - local) + self.may_borrow(name)
        return max(0, local - usage) + min(self.available(self.parent(name), held), reach)

    def potential(self, name: str) -> float:
        if name == POOL:
            return self.subtree(POOL)
        return min(
            self.subtree(name) + self.may_borrow(name),
            self.local(name) + self.potential(self.parent(name)),
        )
