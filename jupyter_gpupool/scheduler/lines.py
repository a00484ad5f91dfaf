"""Caps on the timeline: what may be had at once, or in a period.

Owns: how much of a cap is free at a time, and when something fits under it.
Never: which caps there are, and whom they bound (`limits`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from jupyter_gpupool.scheduler.model import Lease, Placement, Reason, Seconds, Work
from jupyter_gpupool.scheduler.quota import GPU
from jupyter_gpupool.scheduler.timeline import FOREVER, Interval, Profile

Claim = Work | Lease
Booking = tuple[Claim, Placement, Seconds, Seconds]  # what is taken over [start, end)
Kept = list[tuple[Profile, int, int]]
CHARGE_UNIT = 1000


class Scope(NamedTuple):
    """Which claims a cap counts: those of a group or a user (or all), narrowed by what is not empty.

    `lasting` are sessions and jobs that cannot be stopped.
    """

    group: str = ""
    user: str = ""
    kind: str = ""
    priority: str = ""
    array: int | None = None
    lasting: bool = False

    def counts(self, claim: Claim) -> bool:
        """Say whether `claim` counts here."""
        return (
            self.group in ("", claim.group)
            and self.user in ("", claim.user)
            and self.kind in ("", claim.kind)
            and self.priority in ("", claim.priority)
            and self.array in (None, claim.array)
            and (not self.lasting or claim.kind == "session" or not claim.resumable)
        )


class Cap(NamedTuple):
    """The most of one resource that a scope may hold, and the reason to wait when it is reached.

    `what` and `owner` name it in sentences.
    """

    scope: Scope
    resource: str
    capacity: int
    reason: Reason
    what: str
    owner: str


class Line:
    """A cap on the timeline.

    Parameters
    ----------
    profile
        What is free; work that lacks room is parked at it until some frees.
    beyond
        How much more than that may be had.
    early
        How long before its end a claim no longer counts.
    """

    __slots__ = ("beyond", "cap", "early", "profile")

    def __init__(self, cap: Cap, profile: Profile, beyond: int = 0, early: Seconds = 0) -> None:
        self.cap = cap
        self.profile = profile
        self.beyond = beyond
        self.early = early

    @property
    def most(self) -> int:
        """Return the most that could ever be free."""
        return self.cap.capacity

    def need(self, work: Work, amounts: Mapping[str, int]) -> int:
        """Return what `work` needs here, if it takes `amounts`."""
        return amounts[self.cap.resource]

    def free(self, time: Seconds) -> int:
        """Return what is free at `time`."""
        return self.profile.at(time) + self.beyond

    def least(self, need: int) -> int:
        """Return what must be free in the profile, at the least, for `need` to be free here."""
        return need - self.beyond

    def fits(self, need: int, start: Seconds, end: Seconds) -> bool:
        """Say whether `need` is free for work that lasts over [start, end)."""
        return self.profile.fits(need - self.beyond, start, end - self.early)

    def openings(
        self,
        need: int,
        length: Seconds,
        after: Seconds,
        until: Seconds = FOREVER,
        before: Seconds = FOREVER,
    ) -> list[Interval]:
        """List when something may start, at `after` or later, that takes `need` for `length` seconds.

        What opens at `before` or later may be left out.
        """
        return self.profile.openings(need - self.beyond, length - self.early, after, until, before)

    def book(self, amount: int, start: Seconds, end: Seconds) -> None:
        """Count a claim that takes `amount` over [start, end)."""
        if amount and start < end - self.early:
            self.profile.book(start, end - self.early, amount)


class Lack(NamedTuple):
    """A line, and what is needed of it."""

    line: Line
    need: int

    def lacks_at(self, time: Seconds) -> bool:
        """Say whether too little is free at `time`."""
        return self.line.free(time) < self.need


class Reach(Line):
    """How far a group may go in what it shares with others, beside what it and those above it keep.

    Parameters
    ----------
    kept
        The accounts below the one that is bounded that keep something: what each owns and has free, how
        much of what it owns it lends, and how much it keeps.
    """

    __slots__ = ("_kept", "_local")

    def __init__(self, cap: Cap, profile: Profile, beyond: int, kept: Kept) -> None:
        super().__init__(cap, profile, beyond)
        self._kept = [(account, lent) for account, lent, _ in kept]
        self._local = sum(local for _, _, local in kept)

    @property
    def most(self) -> int:
        """Return the most that could ever be free."""
        return self.cap.capacity + self._local

    def free(self, time: Seconds) -> int:
        """Return what is free at `time`, with what is kept."""
        return self.profile.at(time) + self.beyond + self._keeps(time)

    def least(self, need: int) -> int:
        """Return what must be free in the profile, at the least: if all is unused that is kept."""
        return need - self.beyond - self._local

    def fits(self, need: int, start: Seconds, end: Seconds) -> bool:
        """Say whether `need` is free for work that lasts over [start, end)."""
        lacking = need - self.beyond
        if self.profile.fits(lacking, start, end):
            return True
        if self.profile.at(start) < lacking - self._local or self.free(start) < need:
            return False
        return self._grows(start) or all(
            free >= lacking or all(self._keeps(cut) >= lacking - free for cut in self._cuts(first, last))
            for first, last, free in self.profile.levels(start, end)
        )

    def openings(
        self,
        need: int,
        length: Seconds,
        after: Seconds,
        until: Seconds = FOREVER,
        before: Seconds = FOREVER,
    ) -> list[Interval]:
        """List when something may start, at `after` or later; perhaps without what opens from `before` on."""
        last = min(until, before + length)
        lacking = need - self.beyond
        free = Profile(0)
        for cut, end in pairwise([*sorted(self._cuts(after, last)), last]):
            least = lacking - self._keeps(cut)
            for first, following, left in self.profile.levels(cut, end):
                if left < least:
                    free.book(first, following, 1)
        return free.openings(0, length, after, until, before)

    def _grows(self, start: Seconds) -> bool:
        """Say whether what is free, with what is kept, only grows from `start` on."""
        return self.profile.grows(start) and all(account.grows(start) for account, _ in self._kept)

    def _keeps(self, time: Seconds) -> int:
        """Return what is unused at `time` of what is kept."""
        return sum(max(0, account.at(time) - lent) for account, lent in self._kept)

    def _cuts(self, start: Seconds, end: Seconds) -> set[Seconds]:
        """Return the moments in [start, end) from which another amount may be kept."""
        steps = (first for account, _ in self._kept for first, _, _ in account.levels(start, end))
        return {start, *steps}


class Entry(Line):
    """A cap on what is had when work starts: what others take of it later is no concern of that work."""

    __slots__ = ()

    def fits(self, need: int, start: Seconds, end: Seconds) -> bool:
        """Say whether `need` is free for work that lasts over [start, end)."""
        return super().fits(need, start, start + 1)

    def openings(
        self,
        need: int,
        length: Seconds,
        after: Seconds,
        until: Seconds = FOREVER,
        before: Seconds = FOREVER,
    ) -> list[Interval]:
        """List when something may start, at `after` or later; perhaps without what opens from `before` on."""
        return super().openings(need, 1, after, until, before)


class Purse(Line):
    """A budget: what starts is paid for its whole limit, out of the period in which it starts.

    Amounts are in milli-GPU seconds, times the charge of the class in thousandths.

    Parameters
    ----------
    ends
        The ends of the present period and of those that follow.
    charge
        What a second of one milli-GPU costs, in thousandths.
    now
        From when on a claim that runs has yet to be paid for.
    """

    __slots__ = ("_charge", "_now", "ends")

    def __init__(
        self, cap: Cap, profile: Profile, ends: tuple[Seconds, ...], charge: int, now: Seconds
    ) -> None:
        super().__init__(cap, profile)
        self.ends = ends
        self._charge = charge
        self._now = now

    def need(self, work: Work, amounts: Mapping[str, int]) -> int:
        """Return what `work` costs."""
        return amounts[GPU] * work.limit * self._charge

    def affords(self, length: Seconds) -> int:
        """Return how many milli-GPU the whole budget pays for, over `length` seconds."""
        return self.cap.capacity // max(1, length * self._charge)

    def fits(self, need: int, start: Seconds, end: Seconds) -> bool:
        """Say whether it can be paid at `start`, to the end of the period."""
        return self.profile.fits(need, start, self.period_end(start))

    def openings(
        self,
        need: int,
        length: Seconds,
        after: Seconds,
        until: Seconds = FOREVER,
        before: Seconds = FOREVER,
    ) -> list[Interval]:
        """List when something may start, at `after` or later; perhaps without what opens from `before` on."""
        found = []
        while after < before:
            end = self.period_end(after)
            lacking = [last for _, last, free in self.profile.levels(after, end) if free < need]
            opened = max(lacking, default=after)
            if opened < end:
                found.append((opened, end - 1))
            after = end
        return found

    def book(self, amount: int, start: Seconds, end: Seconds) -> None:
        """Pay for a claim that takes `amount` milli-GPU over [start, end)."""
        start = max(start, self._now)
        self.profile.book(start, self.period_end(start), amount * (end - start) * self._charge)

    def period_end(self, time: Seconds) -> Seconds:
        """Return when the period that `time` is in ends."""
        following = bisect_right(self.ends, time)
        return self.ends[following] if following < len(self.ends) else FOREVER
