"""Who comes first.

Owns: the order of all that waits: sessions, then inside quota before above it, then the priority
class (a step higher after long waiting), the group's share, the user's share in the group, submit
time, id. The best head over all groups is taken again and again, and each one taken counts at once.
Never: whether there is room.

A group is looked at only when it may be the best: until then a key that its head cannot be before
stands for it.

Shares are compared exactly: usage/(owed·weight) is scaled by a power of two that exceeds the product
of any two denominators, so different shares get different integers, in their order, and equal ones the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Group, Kind, PriorityClass, Usage, Work
from jupyter_gpupool.scheduler.quota import GPU, ROOT
from jupyter_gpupool.scheduler.roster import Roster, charge_of
from jupyter_gpupool.scheduler.stopping import PLAIN
from jupyter_gpupool.scheduler.tree import Tally

INFINITE = 1 << 512
NANO_PER_MILLI = 1_000_000
CHARGE_UNIT = 1000
TIERS: tuple[Kind, ...] = ("session", "job")

Amounts = Mapping[str, int]
Level = tuple[int, int]  # the tier's number; then minus the class's value
Levels = Mapping[Level, list[Work]]
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

    __slots__ = (
        "_charged",
        "_heap",
        "_levels",
        "_order",
        "_scale",
        "_shares",
        "_usage",
        "_users",
        "group",
        "share",
    )

    def __init__(self, group: Group, levels: Levels, usage: Usage, roster: Roster, scale: int) -> None:
        self.share = _Share(group.quota.quota, group.weight, scale)
        self.share.decayed(usage.by_group.get(group.name, 0))
        self.share.add(roster.charged[group.name], 1)
        self.group = group
        self._levels = levels
        self._order = sorted(levels, reverse=True)
        self._usage = usage.by_user
        self._charged = roster.charged_by
        self._scale = scale
        self._shares: dict[str, _Share] = {}
        self._users: dict[str, list[Work]] = {}
        self._heap: list[tuple[int, int, int, str, int]] = []

    def hold(self, amounts: Amounts, charge: int, user: str) -> None:
        """Count what a ranked work takes."""
        self.share.add(amounts, charge)
        self._user(user).add(amounts, charge)

    def open(self) -> None:
        """Make the queue's best level ready to be read."""
        self._users = {}
        for work in self._levels[self._order[-1]] if self._order else ():
            self._users.setdefault(work.user, []).append(work)
        self._heap = [self._entry(user, 0) for user in self._users]
        heapify(self._heap)

    def head(self, eligible: Callable[[Work], bool]) -> Work | None:
        """Return the best work that takes part."""
        while self._heap:
            _, _, _, user, position = self._heap[0]
            work = self._users[user][position]
            if eligible(work):
                return work
            self.advance()
        return None

    def key(self, work: Work, *, inside: bool) -> Key:
        """Return what the group's head is compared by."""
        tier, value = self._order[-1]
        return tier, int(not inside), value, self.share.value(), self._heap[0][0], work.submitted, work.id

    def advance(self) -> None:
        """Go on from the head: its user's next work takes its place."""
        _, _, _, user, position = self._heap[0]
        if position + 1 < len(self._users[user]):
            heapreplace(self._heap, self._entry(user, position + 1))
            return
        heappop(self._heap)
        if not self._heap:
            self._order.pop()
            self.open()

    def _user(self, name: str) -> _Share:
        """Return the share of a user in the group."""
        found = self._shares.get(name)
        if found is None:
            found = self._shares[name] = _Share(self.group.quota.quota, 1, self._scale)
            found.decayed(self._usage.get((self.group.name, name), 0))
            found.add(self._charged[self.group.name, name], 1)
        return found

    def _entry(self, user: str, position: int) -> tuple[int, int, int, str, int]:
        work = self._users[user][position]
        return self._user(user).value(), work.submitted, work.id, user, position


class _Branch:
    """A group with all that is below it, or the pool: its children by their best heads.

    A child that is only a name is a queue that nobody has opened.
    """

    __slots__ = ("heap", "name", "share")

    def __init__(self, name: str, share: _Share) -> None:
        self.name = name
        self.share = share
        self.heap: list[tuple[Key, _Branch | _Queue | str]] = []

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
    board
        Leases, decayed usage, priority classes, and the groups with their quotas as applied; what is held
        is read when the first work is asked for.
    works
        What is to be ranked, sorted by submit time and id.
    eligible
        What is ranked at all: the rest is passed over and counts for nobody.
    """

    def __init__(self, board: Board, works: Iterable[Work], eligible: Callable[[Work], bool]) -> None:
        self._snapshot = board.snapshot
        self._roster = board.roster
        self._limits = board.limits
        self._groups = board.limits.groups
        self._measure = board.measure
        self._works = [*works]
        self._eligible = eligible
        self._root = _Branch(ROOT, _Share({}, 1, 0))
        self._branches: dict[str, _Branch] = {}

    def __iter__(self) -> Iterator[Work]:
        if len(self._works) == 1:
            yield from filter(self._eligible, self._works)
            return
        self._build()
        while self._root.heap:
            path = [self._root]
            node = self._root.heap[0][1]
            while isinstance(node, _Branch):
                path.append(node)
                node = node.heap[0][1]
            assert isinstance(node, _Queue)
            work = node.head(self._eligible)
            assert work is not None
            yield work
            self._take(path, node, work)

    def _take(self, path: list[_Branch], queue: _Queue, work: Work) -> None:
        """Count `work` for its user, its group and all above, and find the new heads."""
        amounts, charge = self._measure(work), charge_of(work, self._snapshot.priorities)
        queue.hold(amounts, charge, work.user)
        self._count(work.group, amounts)
        queue.advance()
        node: _Branch | _Queue = queue
        key = self._key(queue)
        for branch in reversed(path):
            _put_first(branch.heap, key, node)
            branch.share.add(amounts, charge)
            node, key = branch, self._best(branch)

    def _best(self, branch: _Branch) -> Key | None:
        """Return the key of a branch, opening its foremost queues until its head is known.

        A group's own queue may have come after others since it was looked at: what was ranked below the
        group counts for it too.
        """
        while branch.heap:
            known, node = branch.heap[0]
            if isinstance(node, _Branch) or (isinstance(node, _Queue) and node.group.name != branch.name):
                break
            queue = self._open(node) if isinstance(node, str) else node
            key = self._key(queue)
            if queue is node and key == known:
                break
            _put_first(branch.heap, key, queue)
        return branch.key()

    def _open(self, name: str) -> _Queue:
        past, group = self._snapshot.usage, self._groups[name]
        queue = _Queue(group, self._levels[name], past, self._roster, self._scale)
        if not self._branches:
            self._count(name, self._roster.taken[name])
        queue.open()
        return queue

    def _count(self, group: str, amounts: Amounts) -> None:
        for resource, tally in self._tallies.items():
            tally.add(group, amounts[resource])

    def _key(self, queue: _Queue) -> Key | None:
        work = queue.head(self._eligible)
        if work is None:
            return None
        needs, name = self._measure(work), work.group
        owed = self._groups[name].quota.quota
        return queue.key(work, inside=all(self._tallies[r].left(name) >= needs[r] for r in owed))

    # -- building the tree

    def _build(self) -> None:
        groups = self._groups
        self._tallies = {name: Tally(tree) for name, tree in self._limits.trees.items()}
        most = sum(value for group in groups.values() for value in group.quota.quota.values())
        weight = max((group.weight for group in groups.values()), default=1)
        self._scale = 2 * (max(1, most) * max(1, weight) * NANO_PER_MILLI).bit_length() + 1
        self._levels = self._sort_in()
        self._grow()
        self._count_above()
        self._hang()

    def _sort_in(self) -> Mapping[str, Levels]:
        snapshot, step = self._snapshot, self._snapshot.settings.age_step
        plain = {name: -cls.value for name, cls in snapshot.priorities.items()}
        levels = {
            kind: {name: (tier, value) for name, value in plain.items()} for tier, kind in enumerate(TIERS)
        }
        found: defaultdict[str, defaultdict[Level, list[Work]]] = defaultdict(lambda: defaultdict(list))
        for work in self._works:
            level = levels[work.kind].get(work.priority) if work.age < step else None
            if level is None:
                level = TIERS.index(work.kind), -class_value(work, snapshot.priorities, step)
            found[work.group][level].append(work)
        return found

    def _owed_below(self) -> dict[str, dict[str, int]]:
        """Sum what each group and all groups below it own, of what it names: what they keep included."""
        owed = {name: dict.fromkeys(group.quota.quota, 0) for name, group in self._groups.items()}
        for name, group in self._groups.items():
            for ancestor in self._upward(name):
                sums = owed[ancestor]
                for resource, value in group.quota.quota.items():
                    if resource in sums:
                        sums[resource] += value
        return owed

    def _upward(self, name: str) -> Iterator[str]:
        """Yield a group and its ancestors below the pool."""
        while name in self._groups:
            yield name
            name = self._groups[name].parent

    def _grow(self) -> None:
        """Make a branch for each group that has waiting work somewhere below it."""
        parents = {group.parent for group in self._groups.values()} & self._groups.keys()
        owed = self._owed_below() if parents else {}
        for leaf in self._levels if parents else ():
            for name in self._upward(leaf):
                if name in parents and name not in self._branches:
                    share = _Share(owed[name], self._groups[name].weight, self._scale)
                    self._branches[name] = _Branch(name, share)

    def _count_above(self) -> None:
        """Count past usage and leases for the branches that their groups are in."""
        if not self._branches:
            return
        for name, nano in self._snapshot.usage.by_group.items():
            for share in self._above(name):
                share.decayed(nano)
        for name, taken in self._roster.taken.items():
            self._count(name, taken)
            for share in self._above(name):
                share.add(self._roster.charged[name], 1)

    def _above(self, group: str) -> list[_Share]:
        """Return the shares of the branches that a group is in."""
        return [self._branches[name].share for name in self._upward(group) if name in self._branches]

    def _hang(self) -> None:
        """Hang each group, and then each branch from the deepest up, where it belongs."""
        for name, levels in self._levels.items():
            home = self._branches.get(name) or self._branches.get(self._groups[name].parent, self._root)
            home.heap.append((_bound(levels), name))
        deepest_first = sorted(self._branches, key=lambda name: -sum(1 for _ in self._upward(name)))
        for name in deepest_first:
            branch = self._branches[name]
            heapify(branch.heap)
            key = self._best(branch)
            if key is not None:
                self._branches.get(self._groups[name].parent, self._root).heap.append((key, branch))
        heapify(self._root.heap)
        self._best(self._root)


def _bound(levels: Levels) -> Key:
    """Return the key of a group's first work as if nobody there had used anything: its head's is no less."""
    best = min(levels)
    first = levels[best][0]
    return best[0], 0, best[1], 0, 0, first.submitted, first.id


def _put_first(
    heap: list[tuple[Key, _Branch | _Queue | str]], key: Key | None, node: _Branch | _Queue
) -> None:
    """Put what a node has now in the place of what the heap has first: nothing more, if `key` is None."""
    if key is None:
        heappop(heap)
    else:
        heapreplace(heap, (key, node))
