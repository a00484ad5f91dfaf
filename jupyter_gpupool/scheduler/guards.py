"""What is promised of a group's quota to jobs that may not borrow.

Owns: when such jobs are to start, and the lines that keep others in their group from what they need then.
Never: what else bounds a work (`limits`), nor who is promised what (`promises`).
"""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.lines import Cap, Kept, Reach, Scope
from jupyter_gpupool.scheduler.model import Placement, Reason, Seconds, Work
from jupyter_gpupool.scheduler.quota import ROOT, UNBOUNDED
from jupyter_gpupool.scheduler.timeline import FOREVER, Interval, Profile


class Guard(Reach):
    """What keeps jobs from the quota of a group when a job is promised a start that may not borrow.

    If they ran on then, and took the group above its quota, that promise would have to move.

    Parameters
    ----------
    promised
        When such jobs are promised a start, each with the moment from which on it is in nobody's way.
    """

    __slots__ = ("_promised",)

    def __init__(self, cap: Cap, profile: Profile, kept: Kept, promised: list[Interval]) -> None:
        super().__init__(cap, profile, 0, kept)
        self._promised = promised

    def free(self, time: Seconds) -> int:
        """Return what is free at `time`: all, if nothing is promised for then."""
        is_promised = any(first <= time < begun for first, begun in self._promised)
        return super().free(time) if is_promised else UNBOUNDED

    def least(self, need: int) -> int:
        """Return what must be free in the profile, at the least: nothing, once that job has started."""
        return -UNBOUNDED

    def fits(self, need: int, start: Seconds, end: Seconds) -> bool:
        """Say whether `need` is free for work that lasts over [start, end)."""
        for time, begun in self._promised:
            if time < end and start < begun and super().free(time) < need:
                return False
        return True

    def openings(
        self,
        need: int,
        length: Seconds,
        after: Seconds,
        until: Seconds = FOREVER,
        before: Seconds = FOREVER,
    ) -> list[Interval]:
        """List when something may start, at `after` or later; perhaps without what opens from `before` on."""
        closed = Profile(0)
        for time, begun in self._promised:
            first = max(after, time - length + 1)
            if time < until and first < begun and super().free(time) < need:
                closed.book(first, begun, 1)
        return closed.openings(0, 1, after)


class Guards:
    """The guards of all groups under some limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._promised: dict[tuple[str, str], list[Interval]] = {}
        self._of_group: dict[str, tuple[Guard, ...]] = {}

    def clear(self) -> None:
        """Forget all promises."""
        for promised in self._promised.values():
            promised.clear()

    @property
    def any(self) -> bool:
        """Say whether anything is guarded."""
        return any(self._promised.values())

    def bounds(self, work: Work) -> tuple[Guard, ...]:
        """Return what keeps a job from what is promised to others of its group, or of those above it."""
        if work.kind != "job":
            return ()
        found = self._of_group.get(work.group)
        if found is None:
            found = self._of_group[work.group] = tuple(self._bounds_of(work.group))
        return found

    def book(self, work: Work, placement: Placement, start: Seconds, now: Seconds, sign: int) -> None:
        """Guard what a work is promised, if it may not borrow; `sign` -1 takes that back.

        What is promised for now has yet to start; what is promised for later has started by then.
        """
        limits = self._limits
        if not limits.key(work).lasting:
            return
        begun = start + 1 if start == now else start
        takes = limits.amounts(work, placement)
        for name in limits.groups[work.group].quota.quota:
            if takes[name]:
                promised = self._starts(work.group, name)
                (promised.append if sign > 0 else promised.remove)((start, begun))

    def _bounds_of(self, group: str) -> Iterator[Guard]:
        for name, node, profile, kept in self._limits.above(group):
            if node != ROOT:
                owned = self._limits.trees[name].subtree(node)
                cap = Cap(Scope(node), name, owned, Reason.GROUP_QUOTA, "promised", node)
                yield Guard(cap, profile, kept, self._starts(node, name))

    def _starts(self, group: str, resource: str) -> list[Interval]:
        return self._promised.setdefault((group, resource), [])
