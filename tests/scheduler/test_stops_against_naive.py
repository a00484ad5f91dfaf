"""Who is asked to stop for one job, against the rule written out.

Victims go one after the other until the job fits; then each is spared that is not needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from jupyter_gpupool.scheduler.model import (
    Lease,
    Lend,
    Partition,
    PriorityClass,
    Settings,
    Snapshot,
    Stop,
    Work,
)
from jupyter_gpupool.scheduler.plan import fill, plan
from tests.scheduler.conftest import CLASSES
from tests.scheduler.naive_pool import GPU, Pool

NOW = 1000
LEAST = 100


class Rule:
    """The rule for one job that waits alone."""

    def __init__(self, snapshot: Snapshot, job: Work) -> None:
        self.pool, self.job, self.leases = Pool(snapshot, NOW), job, snapshot.leases
        self.takes = self.pool.measure(job)
        self.preempts = self.pool.cls(job).preempts
        self.soon = max((self.leaves(one) for one in self.leases if one.resumable), default=None)

    def leaves(self, lease: Lease) -> int:
        return NOW + max(1, lease.grace)

    def stops(self) -> tuple[set[int], int | None]:
        """Return who is asked, and when the job can start then, if that is within a grace."""
        if self.soon is None or (found := self.start(())) is not None:
            return set(), None if self.soon is None else found
        for victims in self.prefixes():
            if self.start(victims) is not None:
                for victim in reversed(victims):
                    rest = [one for one in victims if one is not victim]
                    victims = victims if self.start(rest) is None else rest
                return {victim.id for victim in victims}, self.start(victims)
        return set(), None

    def prefixes(self) -> Iterator[list[Lease]]:
        """Yield those of one node, in order, each when it has joined the others that may go before it."""
        gone: dict[str, list[Lease]] = {}
        cards = Counter(gpu.node for gpu in self.pool.snapshot.gpus)
        is_spread = self.job.request.gpus > max(cards.values()) or self.lacks_quota()
        for victim in sorted((one for one in self.leases if self.may_stop(one)), key=self.harm):
            node = "" if is_spread else victim.placement.nodes[0]
            others = gone.setdefault(node, [])
            if self.is_preempted(victim) or self.has_too_much(victim, others):
                others.append(victim)
                if not is_spread:
                    yield list(others)
        yield from gone.values() if is_spread else ()

    def lacks_quota(self) -> bool:
        """Say whether quota must come back, wherever the cards are that held it."""
        return not (
            self.pool.inside(self.job.group, self.takes) and self.pool.is_only_full(self.job, self.takes)
        )

    def may_stop(self, lease: Lease) -> bool:
        return (
            lease.resumable
            and lease.asked is None
            and lease.start <= NOW - LEAST
            and self.pool.end_of(lease) > self.leaves(lease)
        )

    def is_preempted(self, victim: Lease) -> bool:
        lower = self.pool.cls(victim).value < self.pool.cls(self.job).value
        return self.preempts and lower and victim.group == self.job.group

    def has_too_much(self, victim: Lease, gone: Iterable[Lease]) -> bool:
        """Say whether its group, and each above it below the common ancestor, is above what it owns."""
        tree, taker = self.pool.trees[GPU], list(self.pool.upward(self.job.group))
        chain = list(self.pool.upward(victim.group))
        above = [name for name in chain if name not in taker] or chain[:1]
        leaving = [*gone, *(one for one in self.leases if one.asked is not None)]
        held = self.pool.held(GPU, NOW)
        for name in above:
            less = sum(one.placement.gpu_milli for one in leaving if name in self.pool.upward(one.group))
            if tree.usage(name, held) - less <= tree.subtree(name):
                return False
        return True

    def harm(self, lease: Lease) -> tuple[int, ...]:
        return self.pool.cls(lease).value, -lease.start, lease.placement.gpu_milli, -lease.id

    def start(self, victims: Iterable[Lease]) -> int | None:
        """Return when the job could start within the longest grace, its group inside quota, without these."""
        own = sum(one.placement.gpu_milli for one in victims if self.is_preempted(one))
        is_job = self.job.kind == "job"
        if (
            is_job
            and victims
            and not self.pool.inside(self.job.group, {**self.takes, GPU: self.takes[GPU] - own})
        ):
            return None
        pool, gone = self.pool, {one.id for one in victims}
        booked = pool.booked
        pool.booked = [
            replace(one, end=self.leaves(one.claim)) if one.claim.id in gone else one for one in booked
        ]
        times = [time for time in pool.times(self.job) if time <= (self.soon or NOW)]
        found = next((time for time in times if pool.place(self.job, time) is not None), None)
        pool.booked = booked
        return found


class Claim(Rule):
    """The rule for one session where all cards are lent: jobs leave, those of its own group first."""

    def may_stop(self, lease: Lease) -> bool:
        is_staying = lease.asked is None and self.pool.end_of(lease) > self.leaves(lease)
        return lease.kind == "job" and lease.resumable and is_staying

    def has_too_much(self, victim: Lease, gone: Iterable[Lease]) -> bool:
        return True

    def lacks_quota(self) -> bool:
        return False

    def harm(self, lease: Lease) -> tuple[int, ...]:
        return int(lease.group != self.job.group), *super().harm(lease)

    def start(self, victims: Iterable[Lease]) -> int | None:
        caps = self.pool.caps(self.job, self.takes, NOW + self.job.limit)
        return super().start(victims) if all(holds(NOW) for _, _, holds in caps) else None


def build(pool: Any, draw: Random) -> Snapshot:
    """Draw a pool that is nearly full, mostly with jobs of others, and a job that may be owed some of it."""
    shape = draw.choice([(1,), (2,), (3,), (2, 1), (2, 2), (3, 2), (4, 4)])
    cards = tuple(gpu for number, many in enumerate(shape, 1) for gpu in pool.gpus(many, first=number))
    parents = draw.choice([{}, {"b": "a"}, {"d": "c"}, {"b": "a", "d": "c"}])
    named = [
        pool.group(name, draw.choice(owed), parents.get(name, "pool"), lend=draw.choice([None, None, 1]))
        for name, owed in {"a": (2, 3), "b": (0, 0, 1), "c": (0, 1, 2), "d": (0, 0, 1)}.items()
    ]
    free = {card.uuid: card.memory_mib for card in cards}
    running = []
    for id_ in range(10, 10 + 4 * len(cards)):
        size = draw.choice([{"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"gpu_mib": 20480}, {"gpu_mib": 8192}])
        work = pool.job(
            id_,
            group=draw.choice("abbbccddd"),
            resumable=draw.random() < 0.9,
            grace=draw.choice([0, 10, 30]),
            priority=draw.choice(["low", "normal", "normal", "high"]),
            **size,
        )
        need, many = work.request.gpu_mib or pool.card, work.request.gpus or 1
        fits = [card for card in cards if free[card.uuid] >= need]
        fits = [card for card in fits if card.node == fits[0].node][:many]
        if len(fits) == many:
            free.update({card.uuid: free[card.uuid] - need for card in fits})
            end = NOW + draw.choice([20, 150, 200, 200, 200, 200])
            lease = pool.lease(
                work, fits, end, start=NOW - draw.choice([LEAST - 1, LEAST, 300, 300, 300, 400])
            )
            is_asked = work.resumable and draw.random() < 0.1
            running.append(replace(lease, asked=NOW - 5 if is_asked else None))
    size = draw.choice([{"gpus": 1}, {"gpus": 2}, {"gpus": 3}, {"gpus": 8}, {"gpu_mib": 8192}])
    limit, priority = draw.randint(1, 100), draw.choice(["normal", "low", "urgent"])
    job = pool.job(1, group=draw.choice("aaacd"), limit=limit, priority=priority, user="zoe", **size)
    return pool.snapshot(
        [job],
        running,
        gpus=cards,
        groups=named,
        settings=Settings(min_run_time=LEAST),
        priorities={**CLASSES, "urgent": PriorityClass("urgent", 1000, 4000, preempts=True)},
    )


def test_who_is_asked_and_who_is_spared(pool: Any) -> None:
    """Of 400 pools, many ask somebody, and some ask several."""
    asked = [len(check(build(pool, Random(seed)))) for seed in range(400)]
    assert sum(many > 0 for many in asked) > 30
    assert sum(many > 1 for many in asked) > 5


def check(snapshot: Snapshot) -> tuple[Stop, ...]:
    (job,) = snapshot.waiting
    decided, quick = plan(snapshot, NOW), fill(snapshot, NOW)
    assert (quick.starts, quick.stops) == (decided.starts, decided.stops)
    rule = Rule(snapshot, job)
    if not rule.pool.possible(job) or rule.pool.place(job, NOW) is not None:
        assert decided.stops == ()
        return ()
    stops, start = rule.stops()
    assert {stop.lease for stop in decided.stops} == stops
    promised = {one.work: one.start for one in decided.promises}
    assert start is None or promised[1] == start
    for stop in decided.stops:
        victim = next(one for one in snapshot.leases if one.id == stop.lease)
        cause = "preempt" if rule.is_preempted(victim) else "reclaim"
        assert (stop.taker, stop.work, stop.cause) == (1, stop.lease, cause)
    return decided.stops


def lent(pool: Any, draw: Random) -> Snapshot:
    """Draw a partition of sessions at night, with lent cards, and a session that is to have some."""
    shape = draw.choice([(1,), (2,), (3,), (2, 1), (2, 2), (3, 2)])
    cards = tuple(
        gpu for n, many in enumerate(shape, 1) for gpu in pool.gpus(many, partition="development", first=n)
    )
    running = []
    for id_, card in enumerate(cards, 10):
        if draw.random() < 0.2:
            work = pool.session(id_, group="b", gpu_mib=draw.choice([8192, 20480]), resumable=False)
        else:
            resumable, grace = draw.random() < 0.9, draw.choice([0, 10, 30])
            size = draw.choice([{"gpus": 1}, {"gpu_mib": 8192}])
            group, priority = draw.choice("aabbc"), draw.choice(["low", "normal"])
            work = pool.job(id_, group=group, resumable=resumable, grace=grace, priority=priority, **size)
        if draw.random() < 0.9:
            is_asked = work.resumable and draw.random() < 0.1
            lease = pool.lease(
                work, [card], NOW + draw.choice([20, 200, 300]), start=NOW - draw.choice([5, 300])
            )
            running.append(replace(lease, asked=NOW - 5 if is_asked else None))
    size = draw.choice([{"gpus": 1}, {"gpus": 2}, {"gpus": 3}, {"gpu_mib": 8192}, {"gpu_mib": 20480}])
    session = pool.session(1, group=draw.choice("ab"), limit=draw.randint(1, 100), user="zoe", **size)
    found = pool.snapshot(
        [session],
        running,
        gpus=cards,
        groups=[pool.group("a", 2), pool.group("b", 3), pool.group("c", 0)],
        settings=Settings(min_run_time=LEAST),
        windows={"night": ((0, 10**6),)},
    )
    lend = Lend("training", "night")
    return replace(
        found, partitions={"development": Partition("development", frozenset({"session"}), lend=lend)}
    )


def test_who_leaves_a_lent_card_for_a_session(pool: Any) -> None:
    asked = [len(check_claim(lent(pool, Random(seed)))) for seed in range(400)]
    assert sum(many > 0 for many in asked) > 60
    assert sum(many > 1 for many in asked) > 8


def check_claim(snapshot: Snapshot) -> tuple[Stop, ...]:
    (session,) = snapshot.waiting
    decided, quick = plan(snapshot, NOW), fill(snapshot, NOW)
    assert (quick.starts, quick.stops, quick.promises) == (decided.starts, decided.stops, decided.promises)
    rule = Claim(snapshot, session)
    possible = rule.pool.possible(session)
    assert bool(decided.starts) == (possible and rule.pool.place(session, NOW) is not None)
    if decided.starts or not possible:
        assert decided.stops == ()
        return ()
    stops, start = rule.stops()
    assert {stop.lease for stop in decided.stops} == stops
    assert {one.work: one.start for one in decided.promises} == ({} if start is None else {1: start})
    assert {(stop.cause, stop.taker) for stop in decided.stops} <= {("session", 1)}
    return decided.stops
