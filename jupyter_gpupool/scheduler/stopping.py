"""Who is asked to stop for others.

Owns: which leases may be asked, for whom, in which order, and the fewest of them that suffice. Lent cards
are handed back, and claimed by sessions; what a group is owed is taken back from those above theirs; a class
that preempts stops lower ones of its group.
Never: whether there is room without them (see `clearing`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.model import Lease, PriorityClass, Seconds, Snapshot, Stop, StopCause

PLAIN = PriorityClass("normal", 0)

Amounts = Mapping[str, int]
Harm = tuple[int, int, int, int, int]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Victim:
    """A lease that may be asked, why, and what it frees for the groups of `chain`, its own first.

    `above` are those of them that must be above what they own before it may go: none where that is no
    condition.
    """

    lease: Lease
    cause: StopCause
    amounts: Amounts
    chain: tuple[str, ...]
    above: tuple[str, ...] = ()


class Excess:
    """By how much groups are above what they own, while one lease after the other leaves.

    What leaves counts in full for every group above it, so that never too much is taken from one.
    """

    def __init__(self, excess: Callable[[str], Amounts]) -> None:
        self._excess = excess
        self._left: dict[tuple[str, str], int] = {}

    def allows(self, victim: Victim, lacks: Collection[str]) -> bool:
        """Say whether the victim frees something that lacks, of which all groups above it have too much."""
        return not victim.above or any(
            victim.amounts.get(name, 0) > 0 and all(self._of(group, name) > 0 for group in victim.above)
            for name in lacks
        )

    def take(self, victim: Victim, lacks: Collection[str]) -> bool:
        """Let a victim leave, if it may; say whether it does."""
        allowed = self.allows(victim, lacks)
        if allowed:
            self.leave(victim.chain, victim.amounts)
        return allowed

    def leave(self, chain: Iterable[str], amounts: Amounts) -> None:
        """Take note that a lease leaves the groups of `chain`."""
        for group in chain:
            for name, amount in amounts.items():
                self._left[group, name] = self._left.get((group, name), 0) + amount

    def any(self, group: str) -> bool:
        """Say whether a group is above what it owns in anything."""
        return any(self._of(group, name) > 0 for name in self._excess(group))

    def copy(self) -> Excess:
        """Return the same state, to go on from it in another way."""
        other = Excess(self._excess)
        other._left = dict(self._left)
        return other

    def _of(self, group: str, name: str) -> int:
        return self._excess(group).get(name, 0) - self._left.get((group, name), 0)


def must_be_above(victim: Sequence[str], taker: Sequence[str]) -> tuple[str, ...]:
    """Return the groups that must be above what they own: the victim's, and those above it below the pair's
    common ancestor. Both are given with all their ancestors, from the group up."""
    return tuple(group for group in victim if group not in taker) or tuple(victim[:1])


def by_harm(lease: Lease, priorities: Mapping[str, PriorityClass]) -> Harm:
    """Sort victims by: the lowest class first, then the most recently started, then the smallest."""
    value = priorities.get(lease.priority, PLAIN).value
    return value, -lease.start, lease.placement.gpu_milli, lease.request.cpus_milli, -lease.id


def fewest(candidates: Sequence[Item], suffice: Callable[[Sequence[Item]], bool]) -> list[Item] | None:
    """Take candidates in order until they suffice, then spare those that turn out not to be needed.

    The later ones are spared first. `suffice` must hold for more if it holds for fewer.

    Returns
    -------
    list or None
        Those that are needed, in order; None if all together do not suffice.
    """
    needed: list[Item] = []
    if not suffice(candidates):
        return None
    reach = len(candidates)
    while not suffice(needed):
        kept = tuple(needed)
        reach = bisect_left(range(reach), True, key=lambda many: suffice([*candidates[:many], *kept])) - 1
        needed.insert(0, candidates[reach])
    return needed


def leaves_at(lease: Lease, now: Seconds) -> Seconds:
    """Return when a lease is gone that is asked now."""
    return now + max(1, lease.grace)


def asked_at(lease: Lease, ends: Ends) -> Seconds | None:
    """Return when a job on a lent card is asked to hand it back; None if it is not, or was asked before."""
    partition = lease.placement.partition
    if not lease.resumable or lease.asked is not None or not ends.lent(lease.kind, partition):
        return None
    back = ends.hand_back(partition, lease.start)
    return None if back is None or lease.end <= back else back - lease.grace


def hand_backs(snapshot: Snapshot, ends: Ends, now: Seconds) -> list[Stop]:
    """Ask the jobs whose lent cards are due to be handed back."""
    if not any(partition.lend for partition in snapshot.partitions.values()):
        return []
    due = ((lease, asked_at(lease, ends)) for lease in snapshot.leases)
    return [
        Stop(lease.work, lease.id, "hand_back") for lease, when in due if when is not None and when <= now
    ]
