"""How much of one resource is free over time.

Owns: the step function `Profile` and the arithmetic of intervals.
Never: what the resource is (card, CPU, quota, user limit), nor who gets it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise

from jupyter_gpupool.scheduler.model import Seconds

BEGIN: Seconds = 0
FOREVER: Seconds = 1 << 62

_UNREAD: list[int] = []  # shared by all profiles that nobody has read; never changed
_NOTHING: list[tuple[Seconds, Seconds, int]] = []  # shared by all that have nothing noted; never changed

Interval = tuple[Seconds, Seconds]  # both ends belong to it


class Profile:
    """The free amount of one resource, as steps: it grows by `changes[i]` at `times[i]`, from nothing.

    From `_fell` on it only grows. Bookings are only noted until somebody asks: most of a large pool's
    profiles are never read. What is free in each step, `_free`, is added up when it is first needed.
    """

    __slots__ = ("_changes", "_fell", "_free", "_noted", "_past", "_settled", "_times", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._times: list[Seconds] = _UNREAD
        self._changes: list[int] = _UNREAD
        self._free: list[int] | None = None
        self._noted: list[tuple[Seconds, Seconds, int]] = _NOTHING
        self._settled = False
        self._past: Seconds = BEGIN
        self._fell: Seconds = BEGIN

    def reset(self, noted: list[tuple[Seconds, Seconds, int]]) -> None:
        """Forget all bookings but these."""
        self._times = self._changes = _UNREAD
        self._free = None
        self._noted = noted
        self._settled = False
        self._past = self._fell = BEGIN

    def book(self, start: Seconds, end: Seconds, amount: int) -> None:
        """Take `amount` over [start, end); a negative amount gives it back."""
        if self._noted is _NOTHING:
            self._noted = []
        self._noted.append((start, end, amount))
        self._settled = False

    def forget(self, time: Seconds) -> None:
        """Forget what was before `time`, when something is next booked: nobody asks for that any more."""
        self._past = time

    def at(self, time: Seconds) -> int:
        """Return what is free at `time`."""
        if not self._settled:
            self._settle()
        step = bisect_right(self._times, time)
        return self._free[step - 1] if self._free is not None else sum(self._changes[:step])

    def grows(self, start: Seconds) -> bool:
        """Say whether what is free only grows from `start` on."""
        if not self._settled:
            self._settle()
        return start >= self._fell

    def fits(self, need: int, start: Seconds, end: Seconds) -> bool:
        """Say whether `need` is free over all of [start, end)."""
        if not self._settled:
            self._settle()
        times = self._times
        step = bisect_right(times, start) - 1
        if (self._free[step] if self._free is not None else sum(self._changes[: step + 1])) < need:
            return False
        if start >= self._fell:
            return True
        last = bisect_left(times, min(end, self._fell + 1), step)
        return last - step < 2 or min(self._levels()[step:last]) >= need

    def reach(self, need: int, start: Seconds) -> Seconds:
        """Return until when `need` stays free from `start` on (`start` itself: not free at all)."""
        if not self._settled:
            self._settle()
        step = bisect_right(self._times, start) - 1
        free = self._levels()
        if free[step] < need:
            return start
        if start >= self._fell:
            return FOREVER
        for later in range(step + 1, len(free)):
            if free[later] < need:
                return self._times[later]
        return FOREVER

    def levels(self, start: Seconds, end: Seconds) -> Iterator[tuple[Seconds, Seconds, int]]:
        """Yield the steps over [start, end), each with what is free in it."""
        if not self._settled:
            self._settle()
        free = self._levels()
        step = bisect_right(self._times, start) - 1
        for first, last in pairwise([start, *self._times[step + 1 : bisect_left(self._times, end)], end]):
            yield first, last, free[step]
            step += 1

    def copy(self) -> Profile:
        """Return a profile of its own with the same bookings."""
        other = Profile(self.capacity)
        if not self._settled:
            self._settle()
        other._times, other._changes, other._settled = [*self._times], [*self._changes], True
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
        times, free = self._times, self._levels()
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

    def _levels(self) -> list[int]:
        """Return what is free in each step."""
        if self._free is None:
            self._free = list(accumulate(self._changes))
        return self._free

    def _settle(self) -> None:
        noted, self._noted = self._noted, _NOTHING
        self._settled = True
        self._free = None
        if self._times is _UNREAD:
            self._build(noted)
            return
        if self._past > self._times[0]:
            self._drop_past()
        begin = self._times[0]
        for start, end, amount in noted:
            if start > begin:
                self._change(start, -amount)
            elif end > begin:
                self._changes[0] -= amount
            if end > begin:
                self._change(end, amount)
        if self._fell > begin:
            self._find_fall()

    def _drop_past(self) -> None:
        """Let the step of the moment before which all is forgotten be the first."""
        step = bisect_right(self._times, self._past) - 1
        self._changes[: step + 1] = [sum(self._changes[: step + 1])]
        self._times[: step + 1] = [self._past]

    def _change(self, time: Seconds, amount: int) -> None:
        """Let what is free grow by `amount` at `time`; a step that changes nothing is left out."""
        step = bisect_left(self._times, time)
        if step == len(self._times) or self._times[step] != time:
            self._times.insert(step, time)
            self._changes.insert(step, amount)
        else:
            self._changes[step] += amount
        if step and not self._changes[step]:
            del self._times[step], self._changes[step]
        elif amount < 0:
            self._fell = max(self._fell, time)

    def _find_fall(self) -> None:
        step = bisect_right(self._times, self._fell) - 1
        while step > 0 and self._changes[step] >= 0:
            step -= 1
        self._fell = self._times[max(step, 0)]

    def _build(self, noted: list[tuple[Seconds, Seconds, int]]) -> None:
        if len(noted) == 1 and noted[0][0] == BEGIN:  # one lease: nearly all cards of a busy pool
            _, end, amount = noted[0]
            self._times, self._changes = [BEGIN, end], [self.capacity - amount, amount]
            self._fell = BEGIN if amount > 0 else end
            return
        changes: dict[Seconds, int] = {}
        for start, end, amount in noted:
            changes[start] = changes.get(start, 0) - amount
            changes[end] = changes.get(end, 0) + amount
        changes[BEGIN] = changes.get(BEGIN, 0) + self.capacity
        self._times = sorted(changes)
        self._changes = [changes[time] for time in self._times]
        self._fell = max((time for time, amount in changes.items() if amount < 0), default=BEGIN)


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
