"""Who holds something, from one snapshot to the next.

Owns: which leases came and went since the last snapshot; what those of a group, and of each of its users,
take together, and which could be asked to stop, kept up to date as they do.
Never: a cap (`limits`), a card (`floor`); nor who is asked (`clearing`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from jupyter_gpupool.scheduler.model import Lease, PriorityClass, Seconds, Snapshot, Work
from jupyter_gpupool.scheduler.stopping import PLAIN, Harm, by_harm

Amounts = Mapping[str, int]


class Turnover(NamedTuple):
    """Who is there no more, and who is new; whose lease should be over by now, but is not, is in both."""

    gone: list[Lease]
    come: list[Lease]


class Roster:
    """The leases of one snapshot, until it is turned to the next.

    `taken` is what each group takes of each resource; `charged` the same at the price of its classes, in
    thousandths, and `charged_by` that of its users; `running` counts their jobs. `asked` are those that were
    asked to stop, `graces` counts the graces of all jobs that can be stopped.

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
        self.running: Counter[tuple[str, str]] = Counter()
        self.asked: dict[int, Lease] = {}
        self.graces: Counter[Seconds] = Counter()
        self._measure = measure
        self._due = due
        self._leases: tuple[Lease, ...] = ()
        self._compared: tuple[Lease, ...] = ()
        self._differ: tuple[list[Lease], list[Lease]] = [], []
        self._known: dict[int, Lease] = {}
        self._dues: list[tuple[Seconds, int]] = []
        self._harms: list[tuple[Harm, Lease]] = []

    def turn_to(self, snapshot: Snapshot, now: Seconds) -> Turnover:
        """Take note of the leases of a later snapshot of the same pool, under the same rules."""
        gone, come = self._compare(snapshot.leases)
        self._leases, self._differ = snapshot.leases, ([], [])
        for lease in gone:
            self._leave(lease, snapshot.priorities)
        late = self._late(now)
        for lease in come:
            self._join(lease, snapshot.priorities)
        for lease in (*come, *late):
            heappush(self._dues, (self._due(lease), lease.id))
        return Turnover(_in_order([*gone, *late]), _in_order([*come, *late]))

    def new_in(self, snapshot: Snapshot) -> list[Lease]:
        """Return the leases of a later snapshot that were not there before."""
        return self._compare(snapshot.leases)[1]

    def stoppable(self) -> Iterator[Lease]:
        """Yield the jobs that can be stopped and were not asked before, those first whom it harms least."""
        return (lease for _, lease in self._harms)

    def _compare(self, leases: tuple[Lease, ...]) -> tuple[list[Lease], list[Lease]]:
        """Return who is gone and who is new; asked again for the same leases, the answer is ready."""
        if self._compared is not leases:
            self._compared, self._differ = leases, _differences(self._leases, leases)
        return self._differ

    def _join(self, lease: Lease, priorities: Mapping[str, PriorityClass]) -> None:
        self._known[lease.id] = lease
        self._count(lease, charge_of(lease, priorities), 1)
        if lease.asked is not None:
            self.asked[lease.id] = lease
        elif lease.kind == "job" and lease.resumable:
            insort(self._harms, (by_harm(lease, priorities), lease))

    def _leave(self, lease: Lease, priorities: Mapping[str, PriorityClass]) -> None:
        del self._known[lease.id]
        self._count(lease, charge_of(lease, priorities), -1)
        if lease.asked is not None:
            del self.asked[lease.id]
        elif lease.kind == "job" and lease.resumable:
            del self._harms[bisect_left(self._harms, (by_harm(lease, priorities), lease))]

    def _count(self, lease: Lease, charge: int, sign: int) -> None:
        group, user = lease.group, lease.user
        taken, charged, charged_by = self.taken[group], self.charged[group], self.charged_by[group, user]
        for resource, amount in self._measure(lease).items():
            taken[resource] += sign * amount
            charged[resource] += sign * charge * amount
            charged_by[resource] += sign * charge * amount
        if lease.kind == "job":
            self.running[group, user] += sign
            if lease.resumable:
                self.graces[lease.grace] += sign

    def _late(self, now: Seconds) -> list[Lease]:
        """Take out those that are due by now and have not left."""
        late: dict[int, Lease] = {}
        while self._dues and self._dues[0][0] <= now:
            _, id_ = heappop(self._dues)
            lease = self._known.get(id_)
            if lease is not None and self._due(lease) <= now:
                late[id_] = lease
        return [*late.values()]


def charge_of(claim: Work | Lease, priorities: Mapping[str, PriorityClass]) -> int:
    """Return the price of a claim's class, in thousandths."""
    return priorities.get(claim.priority, PLAIN).charge_milli


def _differences(old: Iterable[Lease], new: Iterable[Lease]) -> tuple[list[Lease], list[Lease]]:
    """Return what is no more there and what is new, where leases mostly go anywhere and come at the end.

    Those that have changed places are in both.
    """
    gone: list[Lease] = []
    rest = iter(new)
    following = next(rest, None)
    for lease in old:
        if lease is following:
            following = next(rest, None)
        else:
            gone.append(lease)
    return gone, [] if following is None else [following, *rest]


def _in_order(leases: list[Lease]) -> list[Lease]:
    return sorted(leases, key=lambda lease: lease.id)
