"""Who must leave before work that is owed room has it.

Owns: the names behind `Reclaiming`: those asked to stop, and those above their quota who hold what a group is
owed, with the latest time by which they are gone.
Never: who is asked (`stopping`): it reads what was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jupyter_gpupool.scheduler.board import Board, Option
from jupyter_gpupool.scheduler.model import Lease, Seconds, Stop, Work
from jupyter_gpupool.scheduler.quota import GPU

NAMED = 3

Facts = Mapping[str, object]


class Returns:
    """What comes back on one board; `stops` are those of this plan."""

    def __init__(self, board: Board, stops: Sequence[Stop]) -> None:
        self._board = board
        self._now = board.time
        self._rest = board.snapshot.settings.min_run_time
        self._asked = {stop.lease: stop.taker for stop in stops}
        self._over: list[Lease] | None = None
        self._claimed: dict[str, int] = {}

    def facts(self, work: Work, options: Sequence[Option], *, reached: bool) -> Facts | None:
        """Say who holds what `work` is owed, or leaves for it; None when nobody does.

        Parameters
        ----------
        reached
            Whether it is the quota of all that is used up, not the cards.
        """
        mine = [lease for lease in self._board.snapshot.leases if self._asked.get(lease.id) == work.id]
        if not mine and not reached and not self._board.inside(work):
            return None
        holders = mine or self._holders(work, options, reached)
        return self._told(holders) if holders else None

    def _holders(self, work: Work, options: Sequence[Option], reached: bool) -> list[Lease]:
        """Return who holds what a group is owed, unless works before this one wait for all of it."""
        partitions = {option.bay.partition for option in options}
        chain = self._board.limits.upward(work.group)
        found = [
            lease
            for lease in self._borrowers(work)
            if lease.placement.partition in partitions and self._is_above(lease.group, chain)
        ]
        if reached:
            return found
        need = min(option.gpu_milli for option in options)
        where = " ".join(sorted(partitions))
        claimed = self._claimed.get(where, 0)
        idle = 1000 * sum(option.shelf.idle() for option in options)
        if not need or sum(lease.placement.gpu_milli for lease in found) < claimed + need - idle:
            return []
        self._claimed[where] = claimed + max(0, need - idle)
        return found

    def _borrowers(self, work: Work) -> Iterable[Lease]:
        """Return the jobs that stand above quota, or were asked to stop, other groups' first."""
        if self._over is None:
            limits = self._board.limits
            over = {name: bool(limits.excess(name)) for name in limits.groups}
            self._over = [
                lease
                for lease in self._board.snapshot.leases
                if lease.kind == "job" and (over[lease.group] or self._leaves(lease))
            ]
        return (lease for lease in self._over if lease.group != work.group)

    def _is_above(self, group: str, taker: Sequence[str]) -> bool:
        """Say whether a group, and those above it up to the common ancestor, use more than they own."""
        limits = self._board.limits
        return all(limits.excess(name) for name in limits.upward(group) if name not in taker)

    def _leaves(self, lease: Lease) -> bool:
        return lease.asked is not None or lease.id in self._asked

    def _told(self, holders: Sequence[Lease]) -> Facts:
        leaving = [lease for lease in holders if self._leaves(lease)]
        named = leaving or holders
        return {
            "groups": sorted({lease.group for lease in named}),
            "jobs": sorted(lease.work for lease in named)[:NAMED],
            "more": max(0, len(named) - NAMED),
            "gpu_milli": sum(lease.placement.gpu_milli for lease in named),
            "asked": bool(leaving),
            "latest": max(map(self._gone, named)),
            "now": self._now,
        }

    def _gone(self, lease: Lease) -> Seconds:
        """Return when a lease is gone at the latest, were it asked as soon as it may be."""
        end = self._board.limits.end_of(lease)
        if lease.asked is not None or not lease.resumable:
            return end
        may_be_asked = self._now if lease.id in self._asked else max(self._now, lease.start + self._rest)
        return min(end, may_be_asked + lease.grace)
