"""How much of one resource is free over time.

Owns: the step function `Profile` and the arithmetic of intervals.
Never: what the resource is (card, CPU, quota, user limit), nor who gets it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

from jupyter_gpupool.scheduler.model import Seconds

BEGIN: Seconds = 0
FOREVER: Seconds = 1 << 62

MANY = 32
"""A profile of more steps than so many, and twice of what it needed last, is looked through."""

_UNREAD: list[int] = []  # shared by all profiles that nobody has read; never changed
_NOTHING: list[tuple[Seconds, Seconds, int]] = []  # shared by all that have nothing noted; never changed

Interval = tuple[Seconds, Seconds]  # both ends belong to it


class Profile:
    """The free amount of one resource, as steps: `free[i]` holds from `times[i]` to `times[i + 1]`.

    From `_fell` on it only grows. Bookings are only noted until somebody asks: most of a large pool's
    profiles are never read.
    """

    __slots__ = ("_fell", "_free", "_many", "_noted", "_settled", "_times", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._times: list[Seconds] = _UNREAD
        self._free: list[int] = _UNREAD
        self._noted: list[tuple[Seconds, Seconds, int]] = _NOTHING
        self._settled = False
        self._many = MANY
        self._fell: Seconds = BEGIN

    def reset(self, noted: list[tuple[Seconds, Seconds, int]]) -> None:
        """Forget all bookings but these."""
        self._times = self._free = _UNREAD
        self._noted = noted
        self._settled = False
        self._fell = BEGIN

    def book(self, start: Seconds, end: Seconds, amount: int) -> None:
        """Take `amount` over [start, end); a negative amount gives it back."""
        if self._noted is _NOTHING:
            self._noted = []
        self._noted.append((start, end, amount))
        self._settled = False

    def at(self, time: Seconds) -> int:
        """Return what is free at `time`."""
        if not self._settled:
            self._settle()
        return self._free[bisect_right(self._times, time) - 1]

    def grows(self, start: Seconds) -> bool:
        """Say whether what is free only grows from `start` on."""
        if not self._settled:
            self._settle()
        return start >= self._fell

    def fits(self, need: int, start: Seconds, end: Seconds) -> bool:
        """Say whether `need` is free over all of [start, end)."""
        if not self._settled:
            self._settle()
        times, free = self._times, self._free
        step = bisect_right(times, start) - 1
        if free[step] < need:
            return False
        if start >= self._fell:
            return True
        last = bisect_left(times, min(end, self._fell + 1), step)
        return last - step < 2 or min(free[step:last]) >= need

    def reach(self, need: int, start: Seconds) -> Seconds:
        """Return until when `need` stays free from `start` on (`start` itself: not free at all)."""
        if not self._settled:
            self._settle()
        step = bisect_right(self._times, start) - 1
        if self._free[step] < need:
            return start
        if start >= self._fell:
            return FOREVER
        for later in range(step + 1, len(self._times)):
            if self._free[later] < need:
                return self._times[later]
        return FOREVER

    def levels(self, start: Seconds, end: Seconds) -> Iterator[tuple[Seconds, Seconds, int]]:
        """Yield the steps over [start, end), each with what is free in it."""
        if not self._settled:
            self._settle()
        step = bisect_right(self._times, start) - 1
        for first, last in pairwise([start, *self._times[step + 1 : bisect_left(self._times, end)], end]):
            yield first, last, self._free[step]
            step += 1

    def copy(self) -> Profile:
        """Return a profile of its own with the same bookings."""
        other = Profile(self.capacity)
        if not self._settled:
            self._settle()
        other._times, other._free, other._settled = [*self._times], [*self._free], True
        other._fell = self._fell
        return other

    def openings(
        self,
        need: int,
        length: Seconds,
        after: Seconds,
        until: Seconds = FOREVER,
        before: Seconds = FOREVER,
    ) -> list[Interval]:
        """List when something may start, at `after` or later, that takes `need` for `length` seconds.

        It leaves by `until`: what is booked from then on is not in its way. What opens at `before` or later
        may be left out.
        """
        if not self._settled:
            self._settle()
        times, free = self._times, self._free
        step = bisect_right(times, after) - 1
        found: list[Interval] = []
        opened = after if free[step] >= need else None
        fallen = max(step, bisect_right(times, self._fell) - 1) + 1
        for later in range(step + 1, fallen):
            if times[later] >= until:
                break
            if free[later] >= need:
                if opened is None:
                    if times[later] >= before:
                        break
                    opened = times[later]
            elif opened is not None:
                if times[later] - length >= opened:
                    found.append((opened, times[later] - length))
                opened = None
        if opened is None:
            enough = bisect_left(free, need, fallen)
            if enough < len(times) and times[enough] < min(until, before):
                opened = times[enough]
        if opened is not None:
            found.append((opened, FOREVER))
        return found

    def _settle(self) -> None:
        noted, self._noted = self._noted, _NOTHING
        self._settled = True
        if self._times is _UNREAD:
            self._build(noted)
            return
        for start, end, amount in noted:
            first, last = self._cut(start), self._cut(end)
            self._free[first:last] = [free - amount for free in self._free[first:last]]
            self._fell = max(self._fell, start if amount > 0 else end)
        if any(amount < 0 for _, _, amount in noted):
            self._find_fall()
        if len(self._times) > self._many:
            self._tidy()

    def _find_fall(self) -> None:
        step = bisect_right(self._times, self._fell) - 1
        while step and self._free[step] >= self._free[step - 1]:
            step -= 1
        self._fell = self._times[step]

    def _tidy(self) -> None:
        """Leave out steps that change nothing: what was booked there was given back."""
        free = self._free
        kept = [0, *(step for step in range(1, len(free)) if free[step] != free[step - 1])]
        self._times = [self._times[step] for step in kept]
        self._free = [free[step] for step in kept]
        self._many = MANY + 2 * len(kept)

    def _build(self, noted: list[tuple[Seconds, Seconds, int]]) -> None:
        if len(noted) == 1 and noted[0][0] == BEGIN:  # one lease: nearly all cards of a busy pool
            _, end, amount = noted[0]
            self._times, self._free = [BEGIN, end], [self.capacity - amount, self.capacity]
            self._fell = BEGIN if amount > 0 else end
            return
        changes: dict[Seconds, int] = {BEGIN: 0}
        for start, end, amount in noted:
            changes[start] = changes.get(start, 0) - amount
            changes[end] = changes.get(end, 0) + amount
        self._times = sorted(changes)
        level = self.capacity
        self._free = []
        for time in self._times:
            level += changes[time]
            self._free.append(level)
            if changes[time] < 0:
                self._fell = time

    def _cut(self, time: Seconds) -> int:
        step = bisect_left(self._times, time)
        if step == len(self._times) or self._times[step] != time:
            self._times.insert(step, time)
            self._free.insert(step, self._free[step - 1])
        return step


def meet(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Intersect two sorted lists of disjoint intervals."""
    found: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        first, last = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first <= last:
            found.append((first, last))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found
