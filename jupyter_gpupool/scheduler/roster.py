"""Who holds something, from one snapshot to the next.

Owns: which leases came and went since the last snapshot; what those of a group, and of each of its users,
take together, kept up to date as they do. Never: a cap (`limits`), a card (`floor`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from jupyter_gpupool.scheduler.model import Lease, PriorityClass, Seconds, Snapshot, Work
from jupyter_gpupool.scheduler.timeline import FOREVER

PLAIN = PriorityClass("normal", 0)

Amounts = Mapping[str, int]


class Turnover(NamedTuple):
    """Who is there no more, and who is new; whose lease should be over by now, but is not, is in both."""

    gone: list[Lease]
    come: list[Lease]


class Roster:
    """The leases of one snapshot, until it is turned to the next.

    `taken` is what each group takes of each resource; `charged` the same at the price of its classes, in
    thousandths, and `charged_by` that of its users.

    Parameters
    ----------
    measure
        What a lease takes of each resource that a group is owed.
    due
        When a lease is to end at the latest.
    """

    def __init__(self, measure: Callable[[Lease], Amounts], due: Callable[[Lease], Seconds]) -> None:
        self.taken: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.charged: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.charged_by: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._measure = measure
        self._due = due
        self._known: dict[int, Lease] = {}
        self._dues: dict[int, Seconds] = {}
        self._soonest: Seconds = FOREVER

    def turn_to(self, snapshot: Snapshot, now: Seconds) -> Turnover:
        """Take note of the leases of a later snapshot of the same pool, under the same rules."""
        known = self._known
        there = self._known = dict(zip(map(id, snapshot.leases), snapshot.leases, strict=True))
        gone = [known[key] for key in known.keys() - there.keys()]
        come = [there[key] for key in there.keys() - known.keys()]
        for lease in gone:
            del self._dues[id(lease)]
            self._count(lease, -charge_of(lease, snapshot.priorities), -1)
        late = self._late(now)
        for lease in come:
            due = self._dues[id(lease)] = self._due(lease)
            self._soonest = min(self._soonest, due)
            self._count(lease, charge_of(lease, snapshot.priorities), 1)
        return Turnover(_in_order([*gone, *late]), _in_order([*come, *late]))

    def _count(self, lease: Lease, charge: int, sign: int) -> None:
        taken, charged = self.taken[lease.group], self.charged[lease.group]
        charged_by = self.charged_by[lease.group, lease.user]
        for resource, amount in self._measure(lease).items():
            taken[resource] += sign * amount
            charged[resource] += charge * amount
            charged_by[resource] += charge * amount

    def _late(self, now: Seconds) -> list[Lease]:
        """Return those that should have left by now."""
        if now < self._soonest:
            return []
        self._soonest = min(self._dues.values(), default=FOREVER)
        return [self._known[key] for key, due in self._dues.items() if due <= now]


def charge_of(claim: Work | Lease, priorities: Mapping[str, PriorityClass]) -> int:
    """Return the price of a claim's class, in thousandths."""
    return priorities.get(claim.priority, PLAIN).charge_milli


def _in_order(leases: list[Lease]) -> list[Lease]:
    return sorted(leases, key=lambda lease: lease.id)
