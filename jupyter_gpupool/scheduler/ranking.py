"""Who comes first.

Owns: the order of all that waits: sessions, then inside quota before above it, then the priority
class (a step higher after long waiting), the group's share, the user's share in the group, submit
time, id. The best head over all groups is taken again and again, and each one taken counts at once.
Never: whether there is room.

Shares are compared exactly: usage/(owed·weight) is scaled by a power of two that exceeds the product
of any two denominators, so different shares get different integers, in their order, and equal ones the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace

from jupyter_gpupool.scheduler.model import Group, Kind, Lease, PriorityClass, Snapshot, Work
from jupyter_gpupool.scheduler.quota import GPU

INFINITE = 1 << 512
NANO_PER_MILLI = 1_000_000
CHARGE_UNIT = 1000
PLAIN = PriorityClass("normal", 0)
TIERS: tuple[Kind, ...] = ("session", "job")

Amounts = Mapping[str, int]
Measure = Callable[[Work | Lease], Amounts]
Level = tuple[int, int]  # the tier's number; then minus the class's value
Key = tuple[int, int, int, int, int, int, int]


def class_value(work: Work, priorities: Mapping[str, PriorityClass], age_step: int) -> int:
    """Return the value of the work's class, one step higher once it is `age_step` old.

    The step leads to the next higher class that is open to all groups.
    """
    value = priorities.get(work.priority, PLAIN).value
    if work.age < age_step:
        return value
    higher = [cls.value for cls in priorities.values() if cls.groups is None and cls.value > value]
    return min(higher, default=value)


class _Share:
    """Somebody's charged usage over what is owed: the largest ratio over the resources named."""

    __slots__ = ("_quota", "_scale", "_used", "_weight")

    def __init__(self, quota: Amounts, weight: int, scale: int) -> None:
        self._quota = quota
        self._weight = weight
        self._scale = scale
        self._used: dict[str, int] = {}

    def decayed(self, nano_gpu: int) -> None:
        """Count past usage."""
        if nano_gpu:
            self._used[GPU] = self._used.get(GPU, 0) + nano_gpu

    def add(self, amounts: Amounts, charge: int) -> None:
        """Count what is held or ranked, at the price of its class."""
        used = self._used
        for resource, amount in amounts.items():
            if amount:
                unit = NANO_PER_MILLI // CHARGE_UNIT if resource == GPU else 1
                used[resource] = used.get(resource, 0) + amount * charge * unit

    def value(self) -> int:
        """Return the share, scaled to an integer."""
        largest = 0
        for resource, used in self._used.items():
            if resource in self._quota:
                unit = NANO_PER_MILLI if resource == GPU else CHARGE_UNIT
                owed = self._quota[resource] * self._weight * unit
                ratio = (used << self._scale) // owed if owed else INFINITE
                if ratio > largest:
                    largest = ratio
        return largest


class _Queue:
    """The waiting work of one group, best first."""

    __slots__ = ("_heap", "_order", "_quota", "_scale", "_shares", "_users", "left", "levels", "share")

    def __init__(self, group: Group, scale: int) -> None:
        self.share = _Share(group.quota.quota, group.weight, scale)
        self.left = dict(group.quota.quota)
        self.levels: dict[Level, list[Work]] = {}
        self._quota = group.quota.quota
        self._scale = scale
        self._shares: dict[str, _Share] = {}
        self._order: list[Level] = []
        self._users: dict[str, list[Work]] = {}
        self._heap: list[tuple[int, int, int, str, int]] = []

    def user(self, name: str) -> _Share:
        """Return the share of a user in the group."""
        found = self._shares.get(name)
        if found is None:
            found = self._shares[name] = _Share(self._quota, 1, self._scale)
        return found

    def hold(self, amounts: Amounts, charge: int, user: str) -> None:
        """Count what a lease or a ranked work takes."""
        for resource in self.left:
            self.left[resource] -= amounts[resource]
        self.share.add(amounts, charge)
        self.user(user).add(amounts, charge)

    def open(self) -> None:
        """Make the queue ready to be read."""
        self._order = sorted(self.levels, reverse=True)
        self._open_level()

    def head(self, eligible: Callable[[Work], bool]) -> Work | None:
        """Return the best work that takes part."""
        while self._heap:
            _, _, _, user, position = self._heap[0]
            work = self._users[user][position]
            if eligible(work):
                return work
            self.advance()
        return None

    def key(self, work: Work, needs: Amounts) -> Key:
        """Return what the group's head is compared by."""
        tier, value = self._order[-1]
        outside = any(0 < needs[resource] > left for resource, left in self.left.items())
        return tier, int(outside), value, self.share.value(), self._heap[0][0], work.submitted, work.id

    def advance(self) -> None:
        """Go on from the head: its user's next work takes its place."""
        _, _, _, user, position = self._heap[0]
        if position + 1 < len(self._users[user]):
            heapreplace(self._heap, self._entry(user, position + 1))
            return
        heappop(self._heap)
        if not self._heap:
            self._order.pop()
            self._open_level()

    def _open_level(self) -> None:
        self._users = {}
        for work in self.levels[self._order[-1]] if self._order else ():
            self._users.setdefault(work.user, []).append(work)
        self._heap = [self._entry(user, 0) for user in self._users]
        heapify(self._heap)

    def _entry(self, user: str, position: int) -> tuple[int, int, int, str, int]:
        work = self._users[user][position]
        share = self._shares.get(user)
        return share.value() if share else 0, work.submitted, work.id, user, position


class _Branch:
    """A group with all that is below it, or the pool: its children by their best heads."""

    __slots__ = ("heap", "share")

    def __init__(self, share: _Share) -> None:
        self.share = share
        self.heap: list[tuple[Key, _Branch | _Queue]] = []

    def key(self) -> Key | None:
        """Return the key of the best head below, with the branch's own share: siblings compare by that."""
        if not self.heap:
            return None
        tier, outside, value, _, user_share, submitted, id_ = self.heap[0][0]
        return tier, outside, value, self.share.value(), user_share, submitted, id_


class Ranking:
    """Waiting work in order, lazily: iterate once, stop when nothing more can start.

    Parameters
    ----------
    snapshot
        Leases, decayed usage and priority classes.
    groups
        The groups with their quotas as applied; they include those of all `works`.
    works
        What is to be ranked, sorted by submit time and id.
    measure
        What a work or a lease takes of each resource that a group is owed.
    eligible
        What is ranked at all: the rest is passed over and counts for nobody.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        groups: Mapping[str, Group],
        works: Iterable[Work],
        measure: Measure,
        eligible: Callable[[Work], bool],
    ) -> None:
        self._snapshot = snapshot
        self._groups = groups
        self._measure = measure
        self._eligible = eligible
        self._below = self._owed_below()
        largest = max((value for owed in self._below.values() for value in owed.values()), default=1)
        weight = max((group.weight for group in groups.values()), default=1)
        self._scale = 2 * (max(1, largest) * max(1, weight) * NANO_PER_MILLI).bit_length() + 1
        self._root = _Branch(_Share({}, 1, 0))
        self._branches: dict[str, _Branch] = {}
        self._queues = self._sort_in(works)
        self._grow()
        self._count_usage()
        self._open()

    def __iter__(self) -> Iterator[Work]:
        while self._root.heap:
            path = [self._root]
            node = self._root.heap[0][1]
            while isinstance(node, _Branch):
                path.append(node)
                node = node.heap[0][1]
            work = node.head(self._eligible)
            assert work is not None
            yield work
            self._take(path, node, work)

    def _take(self, path: list[_Branch], queue: _Queue, work: Work) -> None:
        """Count `work` for its user, its group and all above, and find the new heads."""
        amounts, charge = self._measure(work), self._charge(work)
        queue.hold(amounts, charge, work.user)
        queue.advance()
        node: _Branch | _Queue = queue
        key = self._key(queue)
        for branch in reversed(path):
            if key is None:
                heappop(branch.heap)
            else:
                heapreplace(branch.heap, (key, node))
            branch.share.add(amounts, charge)
            node, key = branch, branch.key()

    def _key(self, queue: _Queue) -> Key | None:
        work = queue.head(self._eligible)
        return None if work is None else queue.key(work, self._measure(work))

    # -- building the tree

    def _sort_in(self, works: Iterable[Work]) -> dict[str, _Queue]:
        snapshot, step = self._snapshot, self._snapshot.settings.age_step
        plain = {name: -cls.value for name, cls in snapshot.priorities.items()}
        levels = {
            kind: {name: (tier, value) for name, value in plain.items()} for tier, kind in enumerate(TIERS)
        }
        queues: dict[str, _Queue] = {}
        for work in works:
            level = levels[work.kind].get(work.priority) if work.age < step else None
            if level is None:
                level = TIERS.index(work.kind), -class_value(work, snapshot.priorities, step)
            queue = queues.get(work.group)
            if queue is None:
                queue = queues[work.group] = _Queue(self._groups[work.group], self._scale)
            if level in queue.levels:
                queue.levels[level].append(work)
            else:
                queue.levels[level] = [work]
        return queues

    def _owed_below(self) -> dict[str, dict[str, int]]:
        """Sum the quotas of each group and of all groups below it."""
        owed: dict[str, dict[str, int]] = {name: {} for name in self._groups}
        for name, group in self._groups.items():
            for ancestor in self._upward(name):
                sums = owed[ancestor]
                for resource, value in group.quota.quota.items():
                    sums[resource] = sums.get(resource, 0) + value
        return owed

    def _upward(self, name: str) -> Iterator[str]:
        """Yield a group and its ancestors below the pool."""
        while name in self._groups:
            yield name
            name = self._groups[name].parent

    def _grow(self) -> None:
        """Make a branch for each group that has waiting work somewhere below it."""
        parents = {group.parent for group in self._groups.values()}
        for leaf in self._queues:
            for name in self._upward(leaf):
                if name in parents and name not in self._branches:
                    share = _Share(self._below[name], self._groups[name].weight, self._scale)
                    self._branches[name] = _Branch(share)

    def _count_usage(self) -> None:
        usage = self._snapshot.usage
        for name, nano in usage.by_group.items():
            if name in self._queues:
                self._queues[name].share.decayed(nano)
            for share in self._above(name):
                share.decayed(nano)
        for (name, user), nano in usage.by_user.items():
            if name in self._queues:
                self._queues[name].user(user).decayed(nano)
        for lease in self._snapshot.leases:
            above, queue = self._above(lease.group), self._queues.get(lease.group)
            if above or queue:
                amounts, charge = self._measure(lease), self._charge(lease)
                if queue:
                    queue.hold(amounts, charge, lease.user)
                for share in above:
                    share.add(amounts, charge)

    def _above(self, group: str) -> list[_Share]:
        """Return the shares of the branches that a group is in."""
        if not self._branches:
            return []
        return [self._branches[name].share for name in self._upward(group) if name in self._branches]

    def _open(self) -> None:
        """Hang each queue, and then each branch from the deepest up, where it belongs."""
        for name, queue in self._queues.items():
            queue.open()
            home = self._branches.get(name) or self._branches.get(self._groups[name].parent, self._root)
            key = self._key(queue)
            if key is not None:
                home.heap.append((key, queue))
        deepest_first = sorted(self._branches, key=lambda name: -sum(1 for _ in self._upward(name)))
        for name in deepest_first:
            branch = self._branches[name]
            heapify(branch.heap)
            key = branch.key()
            if key is not None:
                self._branches.get(self._groups[name].parent, self._root).heap.append((key, branch))
        heapify(self._root.heap)

    def _charge(self, claim: Work | Lease) -> int:
        return self._snapshot.priorities.get(claim.priority, PLAIN).charge_milli
