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
from functools import partial
from heapq import heapify, heappop, heapreplace

from jupyter_gpupool.scheduler.model import Group, Kind, Lease, PriorityClass, Snapshot, Work
from jupyter_gpupool.scheduler.quota import GPU

INFINITE = 1 << 512
NANO_PER_MILLI = 1_000_000
CHARGE_UNIT = 1000
PLAIN = PriorityClass("normal", 0)

Amounts = Mapping[str, int]
Measure = Callable[[Work | Lease], Amounts]
TIERS: tuple[Kind, ...] = ("session", "job")
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

    def __init__(self, eligible: Callable[[Work], bool]) -> None:
        self.levels: dict[Level, dict[str, list[Work]]] = {}
        self.blank: Callable[[], _Share] = partial(_Share, {}, 1, 0)
        self._shares: dict[str, _Share] = {}
        self._eligible = eligible
        self._order: list[Level] = []
        self._heap: list[tuple[int, int, int, str, int]] = []

    def share(self, user: str) -> _Share:
        """Return the share of a user in the group."""
        found = self._shares.get(user)
        if found is None:
            found = self._shares[user] = self.blank()
        return found

    def open(self) -> None:
        """Make the queue ready to be read."""
        self._order = sorted(self.levels, reverse=True)
        self._open_level()

    def head(self) -> tuple[Level, int, Work] | None:
        """Return the best work that takes part, with its level and its user's share."""
        while self._heap:
            share, _, _, user, position = self._heap[0]
            level = self._order[-1]
            work = self.levels[level][user][position]
            if self._eligible(work):
                return level, share, work
            self._advance(user, position)
        return None

    def take(self, amounts: Amounts, charge: int) -> None:
        """Take the head off and count it for its user."""
        _, _, _, user, position = self._heap[0]
        self.share(user).add(amounts, charge)
        self._advance(user, position)

    def _advance(self, user: str, position: int) -> None:
        """Put the user's next work in the place of the head."""
        if position + 1 < len(self.levels[self._order[-1]][user]):
            heapreplace(self._heap, self._entry(user, position + 1))
            return
        heappop(self._heap)
        if not self._heap:
            self._order.pop()
            self._open_level()

    def _open_level(self) -> None:
        if self._order:
            self._heap = [self._entry(user, 0) for user in self.levels[self._order[-1]]]
            heapify(self._heap)

    def _entry(self, user: str, position: int) -> tuple[int, int, int, str, int]:
        work = self.levels[self._order[-1]][user][position]
        share = self._shares.get(user)
        return share.value() if share else 0, work.submitted, work.id, user, position


class _Branch:
    """A node of the tree: one group's own queue, or what is below a group."""

    __slots__ = ("heap", "left", "parent", "queue", "share")

    def __init__(self, parent: _Branch | None, share: _Share) -> None:
        self.parent = parent
        self.share = share
        self.heap: list[tuple[Key, _Branch]] = []
        self.queue: _Queue | None = None
        self.left: dict[str, int] = {}


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
        self._parents = {group.parent for group in groups.values()}
        self._below = self._owed_below()
        largest = max((value for owed in self._below.values() for value in owed.values()), default=1)
        weight = max((group.weight for group in groups.values()), default=1)
        self._scale = 2 * (max(1, largest) * max(1, weight) * NANO_PER_MILLI).bit_length() + 1
        self._root = _Branch(None, _Share({}, 1, 0))
        self._inner: dict[str, _Branch] = {}
        self._leaves = {name: self._leaf(groups[name], queue) for name, queue in self._queues(works).items()}
        self._count_usage()
        self._open()

    def __iter__(self) -> Iterator[Work]:
        while self._root.heap:
            leaf = self._root.heap[0][1]
            while leaf.heap:
                leaf = leaf.heap[0][1]
            queue = leaf.queue
            head = queue.head() if queue else None
            assert queue is not None
            assert head is not None
            yield head[2]
            self._take(leaf, queue, head[2])

    def _take(self, leaf: _Branch, queue: _Queue, work: Work) -> None:
        amounts = self._measure(work)
        charge = self._charge(work)
        queue.take(amounts, charge)
        for resource in leaf.left:
            leaf.left[resource] -= amounts[resource]
        leaf.share.add(amounts, charge)
        branch, key = leaf, self._leaf_key(leaf)
        while branch.parent is not None:
            parent = branch.parent
            if key is None:
                heappop(parent.heap)
            else:
                heapreplace(parent.heap, (key, branch))
            parent.share.add(amounts, charge)
            branch, key = parent, self._inner_key(parent)

    # -- the order of heads

    def _leaf_key(self, leaf: _Branch) -> Key | None:
        head = leaf.queue.head() if leaf.queue else None
        if head is None:
            return None
        (tier, value), user_share, work = head
        needs = self._measure(work)
        outside = any(0 < needs[resource] > left for resource, left in leaf.left.items())
        return tier, int(outside), value, leaf.share.value(), user_share, work.submitted, work.id

    def _inner_key(self, branch: _Branch) -> Key | None:
        """Return the key of the best head below, with the branch's own share: siblings compare by that."""
        if not branch.heap:
            return None
        tier, outside, value, _, user_share, submitted, id_ = branch.heap[0][0]
        return tier, outside, value, branch.share.value(), user_share, submitted, id_

    # -- building the tree

    def _queues(self, works: Iterable[Work]) -> dict[str, _Queue]:
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
                queue = queues[work.group] = _Queue(self._eligible)
            users = queue.levels.get(level)
            if users is None:
                users = queue.levels[level] = {}
            if work.user in users:
                users[work.user].append(work)
            else:
                users[work.user] = [work]
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

    def _leaf(self, group: Group, queue: _Queue) -> _Branch:
        owed = group.quota.quota
        parent = self._branch(group.name) if group.name in self._parents else self._branch(group.parent)
        leaf = _Branch(parent, _Share(owed, group.weight, self._scale))
        leaf.queue = queue
        leaf.left = dict(owed)
        queue.blank = partial(_Share, owed, 1, self._scale)
        return leaf

    def _branch(self, name: str) -> _Branch:
        if name not in self._groups:
            return self._root
        if name not in self._inner:
            group = self._groups[name]
            share = _Share(self._below[name], group.weight, self._scale)
            self._inner[name] = _Branch(self._branch(group.parent), share)
        return self._inner[name]

    def _count_usage(self) -> None:
        for name, nano in self._snapshot.usage.by_group.items():
            for share in self._shares(name):
                share.decayed(nano)
        for (name, user), nano in self._snapshot.usage.by_user.items():
            leaf = self._leaves.get(name)
            if leaf is not None and leaf.queue is not None:
                leaf.queue.share(user).decayed(nano)
        for lease in self._snapshot.leases:
            shares = self._shares(lease.group)
            if not shares:
                continue
            leaf = self._leaves.get(lease.group)
            amounts = self._measure(lease)
            charge = self._charge(lease)
            if leaf is not None and leaf.queue is not None:
                for resource in leaf.left:
                    leaf.left[resource] -= amounts[resource]
                shares.append(leaf.queue.share(lease.user))
            for share in shares:
                share.add(amounts, charge)

    def _shares(self, group: str) -> list[_Share]:
        leaf = self._leaves.get(group)
        inner = [self._inner[name].share for name in self._upward(group) if name in self._inner]
        return inner if leaf is None else [leaf.share, *inner]

    def _open(self) -> None:
        for leaf in self._leaves.values():
            assert leaf.queue is not None
            leaf.queue.open()
            key = self._leaf_key(leaf)
            if key is not None and leaf.parent is not None:
                leaf.parent.heap.append((key, leaf))
        deepest_first = sorted(self._inner, key=lambda name: -sum(1 for _ in self._upward(name)))
        for branch in [self._inner[name] for name in deepest_first]:
            heapify(branch.heap)
            key = self._inner_key(branch)
            if key is not None and branch.parent is not None:
                branch.parent.heap.append((key, branch))
        heapify(self._root.heap)

    def _charge(self, claim: Work | Lease) -> int:
        return self._snapshot.priorities.get(claim.priority, PLAIN).charge_milli
