"""The pool as one plan sees it: every resource on one timeline.

Owns: booking leases, promises and starts on machines and limits at once, and trying one piece of work.
Never: who is tried first (`ranking`), nor what is done with the answer (`dispatch`, `forecast`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_gpupool.scheduler.card import Card
from jupyter_gpupool.scheduler.floor import Fit, Floor
from jupyter_gpupool.scheduler.guards import Guards
from jupyter_gpupool.scheduler.headroom import Headroom
from jupyter_gpupool.scheduler.lending import ALWAYS, Term
from jupyter_gpupool.scheduler.limits import ClaimKey, Limits
from jupyter_gpupool.scheduler.lines import Booking, Claim, Lack, Line
from jupyter_gpupool.scheduler.model import (
    GpuShare,
    Lease,
    Placement,
    Promise,
    Reason,
    Request,
    Seconds,
    Snapshot,
    Work,
)
from jupyter_gpupool.scheduler.placement import Bay, Shelf, Site, Size
from jupyter_gpupool.scheduler.recall import KEPT, Recall
from jupyter_gpupool.scheduler.roster import Roster
from jupyter_gpupool.scheduler.timeline import FOREVER, Interval, Profile, meet

# Of each option the limit that lacks room; None where cards, CPUs or memory lack, or nobody lends any.
Bars = tuple[Lack | None, ...]
PLACES = {reason: place for place, reason in enumerate(Reason)}
Room = tuple[Seconds, list[tuple[Site, list[Card]]]]


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One bay in which a request could be placed, and what it would take there.

    `amounts` are what its group then uses of each resource that it is owed. `needs` are what it takes of its
    limits, `guards` what it takes of quota that may be promised to others. On cards that are lent by day it
    takes `slices` of what is free for sessions.
    """

    bay: Bay
    shelf: Shelf
    size: Size
    gpu_milli: int
    amounts: Mapping[str, int]
    needs: tuple[Lack, ...]
    guards: tuple[Lack, ...]
    headroom: Headroom | None = None
    slices: int = 0

    def term(self, work: Work, start: Seconds) -> Term | None:
        """Return the term in which `work` may start here at `start`; None when nobody lends it the cards."""
        return ALWAYS if self.shelf.lender is None else self.shelf.lender.term(work, start)

    def terms(self, work: Work, after: Seconds) -> Iterable[Term]:
        """Return when `work` may start here, from `after` on."""
        return (ALWAYS,) if self.shelf.lender is None else self.shelf.lender.terms(work, after)

    def open_to(self, work: Work, time: Seconds) -> bool:
        """Say whether `work` may start here at `time`, if cards are free."""
        term = self.term(work, time)
        return term is not None and self.leaves_headroom(term, time, time + 1)

    def lack(self, start: Seconds, end: Seconds) -> Lack | None:
        """Return the first limit that has too little over [start, end)."""
        for needs in (self.needs, self.guards):
            for found in needs:
                if not found.line.fits(found.need, start, end):
                    return found
        return None

    def lack_at(self, time: Seconds) -> Lack | None:
        """Return the first limit that has too little at one moment, whatever is to be paid from it later."""
        return next((found for found in (*self.needs, *self.guards) if found.lacks_at(time)), None)

    def leaves_headroom(self, term: Term, start: Seconds, end: Seconds, times: int = 1) -> bool:
        """Say whether enough stays free for sessions."""
        if self.headroom is None or not term.by_day:
            return True
        return self.headroom.profile.fits(times * self.slices, start, end)

    def room(
        self, work: Work, term: Term, allowed: list[Interval], before: Seconds, nodes: Collection[str] | None
    ) -> Room | None:
        """Return the first start, in `allowed` and in a term, with room, whatever the limits."""
        within = meet(allowed, [(term.first, term.last)])
        if not within or within[0][0] >= before:
            return None
        return self.shelf.earliest(self.size, work.limit, within, before, nodes, term.back)

    def openings(self, work: Work, term: Term, allowed: list[Interval], before: Seconds) -> list[Interval]:
        """Return when, in `allowed` and in a term, limits and headroom allow a start before `before`."""
        found = meet(allowed, [(term.first, term.last)])
        demands: list[tuple[Line | Profile, int]] = [*self.needs, *self.guards]
        if self.headroom is not None and term.by_day:
            demands.append((self.headroom.profile, self.slices))
        for cap, need in demands:
            if not found or found[0][0] >= before:
                return []
            found = meet(found, cap.openings(need, work.limit, found[0][0], term.back, before))
        return found if found and found[0][0] < before else []


class Reserved(NamedTuple):
    """A promise that is on the board, and the work to which it was made."""

    work: Work
    promise: Promise


class Board:
    """A snapshot laid out on one timeline, until it is turned to the next.

    `promised` are the works to which promises were made, by their ids; `reserved` the promises that are on
    the board. It is `undisturbed` if nothing is guarded for them, and since the last snapshot work has only
    left, or was started on the board: what is still reserved then holds.
    """

    def __init__(self, snapshot: Snapshot, now: Seconds) -> None:
        self.snapshot = snapshot
        self.limits = Limits(snapshot, now)
        self.guards = Guards(self.limits)
        self.floor = Floor(snapshot, now, self.limits.resources)
        self.roster = Roster(self.measure, self.limits.ends.due)
        self.floor.turn_to(snapshot, now, self.roster.turn_to(snapshot, now), self.limits.end_of)
        self.promised = _promised(snapshot)
        self.reserved: dict[int, Reserved] = {}
        self.undisturbed = True
        self._started: dict[int, tuple[Placement, Seconds]] = {}
        self._options: dict[tuple[ClaimKey, Request], tuple[Option, ...]] = {}
        self._options_of: Recall[tuple[Option, ...]] = Recall()
        self._shortened: dict[int, Seconds] = {}

    def serves_also(self, snapshot: Snapshot, now: Seconds) -> bool:
        """Say whether another snapshot is of the same pool and rules, so that `turn_to` will do."""
        new = self.roster.new_in(snapshot)
        return self.limits.serves_also(snapshot, now, new) and self.floor.serves_also(snapshot, now)

    def turn_to(self, snapshot: Snapshot, now: Seconds) -> None:
        """Lay out a later snapshot: what was booked and is no lease of it is taken off.

        What is promised there as it was stays on, until it is looked at.
        """
        self.promised = _promised(snapshot)
        made = {promise.work: promise for promise in snapshot.promises if promise.start > now}
        for id_, (work, promise) in [*self.reserved.items()]:
            same = self.promised.get(id_) is work and made.get(id_) == promise
            if not same or self.limits.is_paid(work.group):
                self.reserve(work, promise, -1)
        kept = [self._reservation(*found) for found in self.reserved.values()]
        turnover = self.roster.turn_to(snapshot, now)
        self.snapshot = snapshot
        self.limits.turn_to(snapshot, now, turnover, kept)
        self.guards.clear()
        for work, promise in self.reserved.values():
            self.guards.book(work, promise.placement, promise.start, now, 1)
        self.floor.turn_to(snapshot, now, turnover, self.limits.end_of, kept)
        self.undisturbed = not self.guards.any and all(map(self._was_started, turnover.come))
        self._started.clear()
        self._shortened.clear()
        if snapshot.budgets:
            self._options = {key: found for key, found in self._options.items() if not key[0].length}
        if len(self._options) > len(snapshot.waiting) + KEPT:
            self._options.clear()
        self._options_of.trim(len(snapshot.waiting))

    @property
    def time(self) -> Seconds:
        """Return the moment that is being planned."""
        return self.floor.time

    def advance(self, time: Seconds) -> None:
        """Move on to `time`; cards whose free memory changes there must be refreshed."""
        self.floor.time = time

    def options(self, work: Work) -> tuple[Option, ...]:
        """Return the bays in which a request could ever be placed; equal requests of one user share them."""
        found = self._options_of.of(work)
        if found is None:
            claim = self.limits.key(work)
            found = self._options.get((claim, work.request))
            if found is None:
                found = self._options[claim, work.request] = self._resolve(work)
            if not claim.length:
                self._options_of.keep(work, found)
        return found

    def measure(self, claim: Claim) -> Mapping[str, int]:
        """Return what a claim takes of each resource that a group is owed."""
        if isinstance(claim, Lease):
            return self.limits.amounts(claim, claim.placement)
        return self.floor.shape(claim).amounts

    def inside(self, work: Work) -> bool:
        """Say whether the work's group, with it, would be inside quota now in all that the group names."""
        return self.limits.inside(work.group, self.measure(work))

    def in_window(self, work: Work) -> bool:
        """Say whether the work's window is open at this moment; work that names none is in it."""
        if work.window is None:
            return True
        windows = self.snapshot.windows.get(work.window, ())
        return any(first <= self.time < last for first, last in windows)

    def gate(self, work: Work, time: Seconds) -> Seconds | None:
        """Return when, from `time` on, a start is allowed by back-off and window; None if never."""
        time = max(time, work.not_before)
        if work.window is None:
            return time
        windows = self.snapshot.windows.get(work.window, ())
        following = bisect_right(windows, time, key=lambda window: window[1])
        return max(time, windows[following][0]) if following < len(windows) else None

    def lacks(self, work: Work) -> list[Lack]:
        """Return the limits that lack room for `work` at this moment, if some do in every bay.

        They are those of the bay that is ruled out last, in the order of the reasons: none before that rules
        out all of them.
        """
        found: list[Lack] = []
        for needs in [option.needs for option in self.options(work)] or [self._needs(work)]:
            lacking = [lack for lack in needs if lack.lacks_at(self.time)]
            if not lacking:
                return []
            if not found or _place(lacking) > _place(found):
                found = lacking
        return found

    def short(self, work: Work) -> Lack | None:
        """Return the first limit that lacks room for `work` at this moment, with what is needed of it."""
        return next(iter(self.lacks(work)), None)

    def attempt(self, work: Work) -> Placement | Bars:
        """Place `work` at this moment for its whole limit, or return what bars it from each option."""
        return self._place(work, work.limit)

    def fits_for_a_moment(self, work: Work) -> bool:
        """Say whether `work` would fit now, if nothing were reserved for later."""
        return isinstance(self._place(work, None), Placement)

    def earliest(
        self,
        work: Work,
        before: Seconds = FOREVER,
        nodes: Collection[str] | None = None,
        options: Iterable[Option] | None = None,
    ) -> tuple[Seconds, Placement] | None:
        """Find the first start from this moment on and sooner than `before` that moves nothing booked.

        `nodes` narrows the search for work of one node; where leases were shortened they must be named.
        `options` narrows it to some of the work's.
        """
        best: tuple[Seconds, Placement] | None = None
        allowed = self._allowed(work)
        for option in self.options(work) if options is None else options:
            if nodes is None and option.shelf.soonest(option.size) >= before:
                continue
            for term in option.terms(work, self.time):
                if term.first >= before:
                    break
                room = option.room(work, term, allowed, before, nodes)
                opened = option.openings(work, term, _from(allowed, room[0]), before) if room else []
                if not opened:
                    continue
                found = option.shelf.earliest(option.size, work.limit, opened, before, nodes, term.back)
                if found is not None:
                    before = found[0]
                    best = before, _placement(option, found[1])
                    break
        return best

    def has_cards(self, work: Work, before: Seconds) -> bool:
        """Say whether cards, CPUs and memory allow a start sooner than `before`, whatever the limits."""
        allowed = self._allowed(work)
        return any(
            option.room(work, term, allowed, before, None) is not None
            for option in self.options(work)
            if option.shelf.soonest(option.size) < before
            for term in option.terms(work, self.time)
            if term.first < before
        )

    def holds(self, work: Work, placement: Placement, start: Seconds, *, booked: bool = False) -> bool:
        """Say whether a placement made earlier is still free for `work` at `start`.

        Where it is `booked` already, that is whether nothing is booked beyond what there is.
        """
        if self.gate(work, start) != start:
            return False
        known = self.floor.cards
        cards = [known[share.uuid] for share in placement.gpus if share.uuid in known]
        if len(cards) < len(placement.gpus):
            return False
        for option in self.options(work):
            if option.bay.partition == placement.partition and all(map(option.bay.has, cards)):
                return _holds(option, work, cards, placement.nodes, start, times=0 if booked else 1)
        return False

    def book(self, claim: Claim, placement: Placement, start: Seconds, end: Seconds, sign: int = 1) -> None:
        """Take what a claim needs over [start, end); `sign` -1 gives it back."""
        self.floor.book(claim, placement, start, end, sign)
        self.limits.book(claim, placement, start, end, sign)

    def reserve(self, work: Work, promise: Promise, sign: int = 1) -> None:
        """Take what is promised; `sign` -1 gives it back."""
        self.book(*self._reservation(work, promise), sign)
        self.guards.book(work, promise.placement, promise.start, self.time, sign)
        if sign > 0:
            self.reserved[work.id] = Reserved(work, promise)
        else:
            del self.reserved[work.id]

    def end_of(self, work: Work, placement: Placement, start: Seconds) -> Seconds:
        """Return when `work`, started there at `start`, leaves: at its limit, or at the hand-back."""
        ends, end = self.limits.ends, start + work.limit
        if not ends.lent(work.kind, placement.partition):
            return end
        back = ends.hand_back(placement.partition, start)
        return end if back is None else min(end, back)

    def expected_end(self, lease: Lease) -> Seconds:
        """Return until when a lease is booked."""
        return self._shortened.get(lease.id) or self.limits.ends.of(lease)

    def shorten(self, lease: Lease, end: Seconds) -> None:
        """Free what a lease holds at `end`, if it is booked for longer."""
        if end < self.expected_end(lease):
            self._move_end(lease, end)
            self._shortened[lease.id] = end

    def lengthen(self, lease: Lease) -> None:
        """Book a shortened lease again until it was expected to end."""
        if lease.id in self._shortened:
            self._move_end(lease, self.limits.end_of(lease))
            del self._shortened[lease.id]

    def start(self, work: Work, placement: Placement) -> None:
        """Take what `work` needs from this moment to its end."""
        end = self.end_of(work, placement, self.time)
        self.floor.hold(work, placement, end)
        self.limits.hold(work, placement, end)
        self._started[work.id] = placement, end

    def _was_started(self, lease: Lease) -> bool:
        """Say whether a lease holds what its work was given when it was started here."""
        return self._started.get(lease.work) == (lease.placement, self.limits.end_of(lease))

    def _reservation(self, work: Work, promise: Promise) -> Booking:
        start, placement = promise.start, promise.placement
        return work, placement, start, self.end_of(work, placement, start)

    def _place(self, work: Work, length: Seconds | None) -> Placement | Bars:
        """Place `work` at this moment for so long; None = for this moment."""
        time = self.time
        bars: list[Lack | None] = []
        needs, until, found = None, time, None
        for option in self.options(work):
            term = option.term(work, time)
            lack = None
            if term is not None:
                end = min(time + (length or 1), term.back)
                if option.needs is not needs or end != until:
                    needs, until = option.needs, end
                    found = option.lack_at(time) if length is None else option.lack(time, end)
                lack = found
                if lack is None and option.leaves_headroom(term, time, end):
                    picked = option.shelf.pick(option.size, time, end)
                    if picked is not None:
                        return _placement(option, picked)
            bars.append(lack)
        return tuple(bars)

    def _move_end(self, lease: Lease, end: Seconds) -> None:
        old = self.expected_end(lease)
        self.floor.move_end(lease, old, end)
        self.limits.book(lease, lease.placement, min(old, end), max(old, end), 1 if end > old else -1)

    def _needs(self, work: Work) -> tuple[Lack, ...]:
        """Return what work takes of its limits when all cards that would serve are away."""
        amounts = self.measure(work)
        return tuple(Lack(line, line.need(work, amounts)) for line in self.limits.bounds(work))

    def _allowed(self, work: Work) -> list[Interval]:
        after = max(self.time, work.not_before)
        if work.window is None:
            return [(after, FOREVER)]
        windows = self.snapshot.windows.get(work.window, ())
        return [(max(first, after), last - 1) for first, last in windows if last > after]

    def _resolve(self, work: Work) -> tuple[Option, ...]:
        lines, guards = self.limits.bounds(work), self.guards.bounds(work)
        options = []
        amounts: Mapping[str, int] | None = None
        needs: tuple[Lack, ...] = ()
        promised: tuple[Lack, ...] = ()
        for fit in self.floor.shape(work).fits:
            if fit.amounts != amounts:
                amounts = fit.amounts
                needs, promised = _taken(work, amounts, lines), _taken(work, amounts, guards)
            if all(need <= line.most for line, need in needs):
                options.append(self._option(work, fit, needs, promised))
        return tuple(options)

    def _option(self, work: Work, fit: Fit, needs: tuple[Lack, ...], guards: tuple[Lack, ...]) -> Option:
        bay, size = fit.bay, fit.size
        shelf = self.floor.shelf(bay, work.kind, self.floor.serving(work.group, work.user))
        headroom = None if shelf.lender is None else self.floor.headrooms.get(bay.partition)
        slices = headroom.slices(bay.memory, bay.memory) * size.cards if headroom else 0
        return Option(bay, shelf, size, fit.gpu_milli, fit.amounts, needs, guards, headroom, slices)


def _taken(work: Work, amounts: Mapping[str, int], lines: Iterable[Line]) -> tuple[Lack, ...]:
    needs = (Lack(line, line.need(work, amounts)) for line in lines)
    return tuple(lack for lack in needs if lack.need)


def _from(allowed: list[Interval], time: Seconds) -> list[Interval]:
    return [(max(first, time), last) for first, last in allowed if last >= time]


def _promised(snapshot: Snapshot) -> dict[int, Work]:
    """Return the works to which promises were made, by their ids."""
    made = {promise.work for promise in snapshot.promises}
    return {work.id: work for work in snapshot.waiting if work.id in made} if made else {}


def _holds(
    option: Option, work: Work, cards: list[Card], nodes: tuple[str, ...], start: Seconds, times: int
) -> bool:
    """Say whether `work` fits so many `times` on these cards and nodes, from `start` on."""
    term = option.term(work, start)
    known = option.bay.site_of
    sites = [known[node] for node in nodes if node in known]
    if term is None or len(sites) < len(nodes):
        return False
    end, size = min(start + work.limit, term.back), option.size
    return (
        all(line.fits(times * need, start, end) for line, need in (*option.needs, *option.guards))
        and option.leaves_headroom(term, start, end, times)
        and all(site.cpus.fits(times * size.cpus, start, end) for site in sites)
        and all(site.memory.fits(times * size.memory, start, end) for site in sites)
        and all(option.shelf.view(card).fits(times * size.mib, start, end) for card in cards)
    )


def _placement(option: Option, picked: list[tuple[Site, list[Card]]]) -> Placement:
    shares = tuple(GpuShare(card.gpu.uuid, option.size.mib) for _, cards in picked for card in cards)
    return Placement(tuple(site.node for site, _ in picked), shares, option.gpu_milli, option.bay.partition)


def _place(lacks: Sequence[Lack]) -> int:
    """Return where the first of some lacks comes among the reasons."""
    return PLACES[lacks[0].line.cap.reason]
