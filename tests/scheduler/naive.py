"""A planner by brute force, for small pools: the rules as they are written, and nothing clever.

Owns: the order; one pass of starts and promises; estimates; what bars a start.
Never: stops for others and lent cards; anything of the scheduler but its words (`model`).

Where the rules leave a choice of cards open, it takes those of the plan that it checks, if they are free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import inf

from jupyter_gpupool.scheduler.model import Group, Placement, Promise, Quota, Reason, Snapshot, Work
from tests.scheduler.naive_pool import GPU, Booking, Claim, Pool, Takes, milli_of
from tests.scheduler.naive_tree import POOL

ORDER = list(Reason)


def order(pool: Pool, works: Iterable[Work]) -> Iterator[Work]:
    """Yield works, best first: the best head over groups is taken again and again, and counts at once."""
    left = list(works)
    ranked: list[Work] = []
    while left:
        best = _head(pool, POOL, left, ranked)
        assert best is not None
        yield best[1]
        ranked.append(best[1])
        left.remove(best[1])


Key = tuple[float, ...]


def _head(pool: Pool, node: str, left: list[Work], ranked: list[Work]) -> tuple[Key, Work] | None:
    """Return the best head at and below a group: its own, or a child's, compared by their shares."""
    found: list[tuple[Key, Work]] = []
    own = [work for work in left if work.group == node]
    if own and node in pool.groups:
        work = min(own, key=lambda work: _in_group(pool, work, ranked))
        found.append((_key(pool, work, ranked, _share(pool, [node], node, ranked)), work))
    for child in (name for name, group in pool.groups.items() if _parent(pool, group) == node):
        below = [name for name in pool.groups if child in pool.upward(name)]
        head = _head(pool, child, left, ranked)
        if head is not None:
            share = _share(pool, below, child, ranked)
            found.append((_key(pool, head[1], ranked, share), head[1]))
    return min(found, default=None, key=lambda one: one[0])


def _parent(pool: Pool, group: Group) -> str:
    return group.parent if group.parent in pool.groups else POOL


def _key(pool: Pool, work: Work, ranked: list[Work], share: float) -> Key:
    outside = not _is_inside(pool, work, ranked)
    tier = work.kind == "job"
    user = _user_share(pool, work, ranked)
    return tier, outside, -value(pool, work), share, user, work.submitted, work.id


def _in_group(pool: Pool, work: Work, ranked: list[Work]) -> Key:
    return (
        work.kind == "job",
        -value(pool, work),
        _user_share(pool, work, ranked),
        work.submitted,
        work.id,
    )


def value(pool: Pool, work: Work) -> int:
    """Return the class's value, a step higher after long waiting, though never that of a restricted one."""
    known, own = pool.snapshot.priorities, pool.cls(work).value
    if work.age < pool.snapshot.settings.age_step:
        return own
    return min([one.value for one in known.values() if one.groups is None and one.value > own], default=own)


def _is_inside(pool: Pool, work: Work, ranked: list[Work]) -> bool:
    takes = pool.measure(work)
    for name in pool.groups[work.group].quota.quota:
        held: Counter[str] = Counter()
        for claim in (*pool.snapshot.leases, *ranked):
            held[claim.group] += pool.measure(claim)[name]
        tree = pool.trees[name]
        if tree.usage(work.group, held) + takes[name] > tree.subtree(work.group):
            return False
    return True


def _share(pool: Pool, groups: list[str], owner: str, ranked: list[Work]) -> float:
    claims = [one for one in (*pool.snapshot.leases, *ranked) if one.group in groups]
    nano = sum(pool.snapshot.usage.by_group.get(name, 0) for name in groups)
    owed: Counter[str] = Counter()
    for name in pool.groups[owner].quota.quota:
        owed[name] = sum(pool.groups[group].quota.quota.get(name, 0) for group in groups)
    return _largest(pool, claims, nano, owed, pool.groups[owner].weight)


def _user_share(pool: Pool, work: Work, ranked: list[Work]) -> float:
    whose = work.group, work.user
    claims = [one for one in (*pool.snapshot.leases, *ranked) if (one.group, one.user) == whose]
    nano = pool.snapshot.usage.by_user.get(whose, 0)
    return _largest(pool, claims, nano, pool.groups[work.group].quota.quota, 1)


def _largest(pool: Pool, claims: list[Claim], nano: int, owed: Takes, weight: int) -> float:
    found: list[float] = [0]
    for name, quota in owed.items():
        used = Fraction(nano, 10**6) if name == GPU else Fraction(0)
        for claim in claims:
            used += Fraction(pool.measure(claim)[name] * pool.cls(claim).charge_milli, 1000)
        if used:
            found.append(used / (quota * weight) if quota * weight else inf)
    return max(found)


class Naive:
    """One pass: read `starts`, `promises`, `estimates` (by work) and `bar` afterwards."""

    def __init__(
        self, snapshot: Snapshot, now: int, wishes: Mapping[tuple[int, int], Placement] | None = None
    ) -> None:
        self.pool, self.now, self.snapshot = Pool(snapshot, now), now, snapshot
        self.wishes = wishes or {}
        self.starts: dict[int, bool] = {}
        self.promises: dict[int, Promise] = {}
        self.estimates: dict[int, int] = {}
        self.waiting: list[Work] = []
        self.works = {work.id: work for work in snapshot.waiting}
        self._reserved: dict[int, Booking] = {}
        self._broken: list[Promise] = []
        self._served: set[int] = set()
        self._freed = False
        self._carry()
        self._pass()
        self._estimate()

    def takes_part(self, work: Work) -> bool:
        return not (work.held or work.invalid or work.after) and self.pool.possible(work)

    # -- promises

    def _carry(self) -> None:
        for promise in sorted(self.snapshot.promises, key=lambda one: (one.start, one.made, one.work)):
            if promise.work in self.works and self.takes_part(self.works[promise.work]):
                self._keep(promise)
        jobs = [*self.promises, *(promise.work for promise in self._broken)]
        self._given = Counter(self.works[id_].group for id_ in jobs if self.works[id_].kind == "job")

    def _keep(self, promise: Promise) -> None:
        work, start = self.works[promise.work], max(promise.start, self.now)
        if self.pool.holds(work, promise.placement, start):
            self._reserve(replace(promise, start=start))
        elif work.kind == "job":
            self._broken.append(promise)

    def _reserve(self, promise: Promise) -> None:
        work = self.works[promise.work]
        booking = Booking(work, promise.placement, promise.start, promise.start + work.limit, promised=True)
        self.promises[work.id], self._reserved[work.id] = promise, booking
        self.pool.booked.append(booking)

    def _lift(self, id_: int) -> Promise | None:
        if id_ not in self.promises:
            return None
        self.pool.booked.remove(self._reserved.pop(id_))
        return self.promises.pop(id_)

    def _repair(self) -> None:
        broken, self._broken = self._broken, []
        for promise in broken:
            found = self._earliest(self.works[promise.work])
            if found is not None:
                self._reserve(replace(promise, start=found[0], placement=found[1]))

    def _earliest(self, work: Work, before: float = inf) -> tuple[int, Placement] | None:
        for time in self.pool.times(work):
            found = self._place(work, time) if time < before else None
            if found is not None:
                return time, found
        return None

    def _place(self, work: Work, time: int) -> Placement | None:
        return self.pool.place(work, time, self.wishes.get((work.id, time)))

    # -- the pass

    def _pass(self) -> None:
        takes_part = [work for work in self.snapshot.waiting if self.takes_part(work)]
        for work in order(self.pool, takes_part):
            if work.kind == "job":
                self._repair()
            if not (self._session(work) if work.kind == "session" else self._job(work)):
                self.waiting.append(work)
            self._served.add(work.id)
        self._repair()
        while self._freed:
            self._freed = False
            passed, self.waiting = self.waiting, []
            for work in passed:
                if work.kind == "session" or not self._again(work):
                    self.waiting.append(work)

    def _start(self, work: Work) -> bool:
        found = self._place(work, self.now)
        if found is None:
            return False
        due = [self._reserved[id_] for id_, one in self.promises.items() if one.start <= self.now]
        self.pool.booked = [one for one in self.pool.booked if one not in due]
        self.starts[work.id] = work.kind == "job" and not self.pool.inside(
            work.group, self.pool.takes_at(work, found)
        )
        self.pool.booked += due
        self.pool.booked.append(Booking(work, found, self.now, self.now + work.limit))
        return True

    def _session(self, work: Work) -> bool:
        """Sessions go before all promises of jobs."""
        own = self._lift(work.id)
        jobs = [id_ for id_ in self.promises if self.works[id_].kind == "job"]
        started = self._start(work)
        lifted = [self._lift(id_) for id_ in jobs]
        if not started:
            self._start(work)
        if own is not None and work.id not in self.starts:
            found = self._earliest(work, own.start)
            self._reserve(replace(own, start=found[0], placement=found[1]) if found else own)
        for promise in lifted:
            self._keep(promise)
        return work.id in self.starts

    def _job(self, work: Work) -> bool:
        own = self._lift(work.id)
        if self._start(work):
            self._freed = self._freed or own is not None
            return True
        if own is not None:
            found = self._earliest(work, own.start)
            self._reserve(replace(own, start=found[0], placement=found[1]) if found else own)
            self._freed = self._freed or found is not None
            return False
        wants = self._is_open(work) and self.bar(work) in (
            None,
            Reason.OUTSIDE_WINDOW,
            Reason.GROUP_QUOTA,
        )
        found = self._earliest(work) if wants else None
        giving_way = [id_ for id_ in self.promises if self._gives_way(self.works[id_], work)]
        lifted = [self._lift(id_) for id_ in giving_way]
        started = bool(lifted) and self._start(work)
        if not started and wants:
            sooner = self._earliest(work, found[0] if found else inf) if lifted else None
            found = sooner or found
            if found is not None:
                self._given[work.group] += 1
                self._reserve(Promise(work.id, *found, self.now))
        for promise in lifted:
            self._keep(promise)
        return started

    def _is_open(self, work: Work) -> bool:
        settings = self.snapshot.settings
        return (
            self._given.total() < settings.promises and self._given[work.group] < settings.promises_per_group
        )

    def _gives_way(self, other: Work, work: Work) -> bool:
        """Say whether the promise of `other` gives way to a later job."""
        if other.kind != "job" or other.id in self._served:
            return False
        inside = {one.id: self._inside(one) for one in (work, other)}
        cls = self.pool.cls(work)
        pays = cls.charge_milli > 1000 or cls.preempts
        return (work.group != other.group and inside[work.id] and not inside[other.id]) or (
            pays and value(self.pool, other) < value(self.pool, work)
        )

    def _inside(self, work: Work) -> bool:
        """Say whether a group is inside quota with `work`, whose own promise may be due."""
        booked = self.pool.booked
        self.pool.booked = [one for one in booked if one.claim is not work]
        inside = self.pool.inside(work.group, self.pool.measure(work))
        self.pool.booked = booked
        return inside

    def _again(self, work: Work) -> bool:
        own = self._lift(work.id)
        if self._start(work):
            self._freed = self._freed or own is not None
            return True
        if own is not None:
            self._reserve(own)
        return False

    # -- afterwards

    def _estimate(self) -> None:
        """Start what waits, best first, at each moment at which something may have become possible."""
        self.end_of_pass = list(self.pool.booked)
        left = [work for work in self.waiting if work.id not in self.promises]
        time: int | None = self.now
        while left and time is not None:
            for work in list(left):
                found = self._place(work, time)
                if found is not None:
                    self.estimates[work.id] = time
                    self.pool.booked.append(Booking(work, found, time, time + work.limit))
                    left.remove(work)
            later = {one for work in left for one in self.pool.times(work) if one > time}
            time = min(later, default=None)
        self.pool.booked = self.end_of_pass

    def reason(self, work: Work) -> Reason | None:
        """Return why a work waits; None: only room lacks."""
        if work.held:
            return Reason.HELD
        if work.invalid:
            return Reason.INVALID
        if not self.pool.possible(work):
            return refusal(self.pool, work)
        return Reason.DEPENDENCY if work.after else self.bar(work)

    def bar(self, work: Work) -> Reason | None:
        """Return the first reason between a dependency and the room that holds now; None: only room lacks."""
        pool, now = self.pool, self.now
        if not pool.in_window(work, now):
            return Reason.OUTSIDE_WINDOW
        lacks = self._lacks(work)
        for reason in (Reason.USER_LIMIT, Reason.ARRAY_LIMIT):
            if reason in lacks:
                return reason
        if work.not_before > now:
            return Reason.BACK_OFF
        if Reason.GROUP_QUOTA in lacks:
            return Reason.GROUP_QUOTA
        return Reason.BUDGET if Reason.BUDGET in lacks else None

    def _lacks(self, work: Work) -> set[Reason]:
        """Return what lacks now if something does in every bay: in that which is ruled out last."""
        everywhere = []
        for bay in self.pool.bays(work):
            takes = self.pool.takes(work, milli_of(work, bay), bay[0].model if bay else "")
            if not self.pool.could_ever(work, bay, takes):
                continue
            found = set(self._lacking(work, takes))
            if not found:
                return set()
            everywhere.append(found)
        return max(everywhere, key=lambda found: min(map(ORDER.index, found)), default=set())

    def _lacking(self, work: Work, takes: Takes) -> Iterator[Reason]:
        pool, now = self.pool, self.now
        end = now + work.limit
        if not pool.affords(work, takes, now, now):
            yield Reason.BUDGET
        for reason, _, holds in pool.caps(work, takes, end):
            if holds(now):
                continue
            is_shared = reason is Reason.GROUP_QUOTA and holds.__name__ == "reaches"
            if not (is_shared and (self._comes_back(work) or self.pool.is_only_full(work, takes))):
                yield reason

    def _comes_back(self, work: Work) -> bool:
        """Say whether what others have borrowed is the group's own."""
        return self.pool.inside(work.group, self.pool.measure(work))


def refusal(pool: Pool, work: Work) -> Reason:
    """Tell apart what there is not from what one may not have."""
    cards = replace(work.request, cpus_milli=0, memory_mib=0, gpu_mib=min(1, work.request.gpu_mib))
    anybody = replace(work, limit=1, priority="", group="anybody", request=cards)
    groups = {"anybody": Group("anybody", POOL, Quota({GPU: 10**9}))}
    free = Pool(replace(pool.snapshot, groups=groups, leases=(), waiting=(), budgets={}), pool.now)
    return Reason.EXCEEDS_LIMIT if free.possible(anybody) else Reason.NO_SUCH_GPU
