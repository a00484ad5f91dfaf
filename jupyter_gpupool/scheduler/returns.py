"""Who must leave before work that is owed room has it.

Owns: the names behind `Reclaiming`: those asked to stop, and those above their quota who hold what a group is
owed, with the latest time by which they are gone.
Never: who is asked (`stopping`): it reads what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from jupyter_gpupool.scheduler.board import Board, Option
from jupyter_gpupool.scheduler.model import Lease, Seconds, Stop, Work

NAMED = 3

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Returning:
    """Leases whose cards come back to a group, what they hold of cards, and the facts about them."""

    gpu_milli: int
    facts: Facts


NOTHING = Returning(0, {})


class Whose(NamedTuple):
    """Jobs that come back to the same groups: those of one group, below `top`, in one partition."""

    group: str
    top: str
    partition: str
    leaves: bool


class Returns:
    """What comes back on one board; `stops` are those of this plan."""

    def __init__(self, board: Board, stops: Sequence[Stop]) -> None:
        self._board = board
        self._now = board.time
        self._rest = board.snapshot.settings.min_run_time
        self._asked = {stop.lease: stop.taker for stop in stops}
        self._takers = {stop.taker for stop in stops}
        self._claimed: dict[frozenset[str], int] = {}
        self._found: dict[object, Returning] = {}
        self._sums: dict[tuple[Whose, ...], Returning] = {}

    def facts(self, work: Work, options: Sequence[Option], *, reached: bool) -> Facts | None:
        """Say who holds what `work` is owed, or leaves for it; None when nobody does.

        Call it for works in rank order: what one of them waits for does not come back to the next.

        Parameters
        ----------
        reached
            Whether it is the quota of all that is used up, not the cards.
        """
        if work.id in self._takers:
            leases = self._board.snapshot.leases
            return self._told([lease for lease in leases if self._asked.get(lease.id) == work.id]).facts
        owed = self._board.inside(work)
        if not self._over or not (owed or work.kind == "session"):
            return None
        where = frozenset(option.bay.partition for option in options)
        found = self._back_to(work, where, owed=owed)
        need = min(option.gpu_milli for option in options)
        idle = 1000 * sum(option.shelf.idle() for option in options)
        claimed = self._claimed.get(where, 0) + max(0, need - idle)
        if found.gpu_milli < (1 if reached else max(need and claimed, 1)):
            return None
        self._claimed[where] = claimed
        return found.facts

    def _back_to(self, work: Work, where: frozenset[str], *, owed: bool) -> Returning:
        """Return what others hold that the group of `work` is `owed`, and for a session jobs that leave."""
        key = work.kind, work.group, where, owed
        found = self._found.get(key)
        if found is None:
            chain = self._board.limits.upward(work.group)
            others = tuple(
                whose
                for whose, (above, _) in self._over.items()
                if whose.partition in where
                and (
                    (work.kind == "session" and whose.leaves)
                    or (owed and ((above and whose.top != chain[-1]) or self._is_above(whose.group, chain)))
                )
            )
            found = self._found[key] = self._back_from(others)
        return found

    def _back_from(self, others: tuple[Whose, ...]) -> Returning:
        """Return what these hold; groups that are owed the same share the answer."""
        found = self._sums.get(others)
        if found is None:
            leases = [lease for whose in others for lease in self._over[whose][1]]
            found = self._sums[others] = self._told(leases) if leases else NOTHING
        return found

    @cached_property
    def _over(self) -> dict[Whose, tuple[bool, list[Lease]]]:
        """Sort the jobs of groups above quota and those asked to stop by whose they are.

        The first tells whether all groups up to the topmost are above quota, or they leave anyway.
        """
        limits = self._board.limits
        groups = {lease.group for lease in self._board.snapshot.leases if lease.kind == "job"}
        chains = {name: limits.upward(name) for name in groups}
        over = {name for chain in chains.values() for name in chain if limits.excess(name)}
        found: dict[Whose, tuple[bool, list[Lease]]] = {}
        for lease in self._board.snapshot.leases:
            leaves = self._leaves(lease)
            if lease.kind == "job" and (lease.group in over or leaves):
                chain = chains[lease.group]
                whose = Whose(lease.group, chain[-1], lease.placement.partition, leaves)
                if whose not in found:
                    found[whose] = leaves or over.issuperset(chain), []
                found[whose][1].append(lease)
        return found

    def _is_above(self, group: str, taker: Sequence[str]) -> bool:
        """Say whether a group, and those above it below the common ancestor, use more than they own."""
        limits = self._board.limits
        below = [name for name in limits.upward(group) if name not in taker]
        below = below or [name for name in taker[1:] if name == group]
        return bool(below) and all(map(limits.excess, below))

    def _leaves(self, lease: Lease) -> bool:
        return lease.asked is not None or lease.id in self._asked

    def _told(self, holders: Sequence[Lease]) -> Returning:
        leaving = [lease for lease in holders if self._leaves(lease)]
        named = leaving or holders
        facts = {
            "groups": sorted({lease.group for lease in named}),
            "jobs": sorted(lease.work for lease in named)[:NAMED],
            "more": max(0, len(named) - NAMED),
            "gpu_milli": sum(lease.placement.gpu_milli for lease in named),
            "asked": bool(leaving),
            "latest": max(map(self._gone, named)),
            "now": self._now,
        }
        return Returning(sum(lease.placement.gpu_milli for lease in holders), facts)

    def _gone(self, lease: Lease) -> Seconds:
        """Return when a lease is gone at the latest, were it asked as soon as it may be."""
        end = self._board.limits.end_of(lease)
        if lease.asked is not None or not lease.resumable:
            return end
        may_be_asked = self._now if lease.id in self._asked else max(self._now, lease.start + self._rest)
        return min(end, may_be_asked + lease.grace)
