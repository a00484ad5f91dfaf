"""Invariants over random histories, and a brute-force planner on tiny pools."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.scheduler.model import PriorityClass, Reason, Settings, UserLimits
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.reasons import explain
from jupyter_gpupool.scheduler.standing import Standing

NO_START = {Reason.HELD, Reason.INVALID, Reason.NO_SUCH_GPU, Reason.EXCEEDS_LIMIT, Reason.UNAVAILABLE}
CLASSES = {
    "low": PriorityClass("low", -100, 500),
    "normal": PriorityClass("normal", 0),
    "high": PriorityClass("high", 100, 2000, running_jobs=1),
}
GIB = 1024

sizes = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(0, 4)}),
    st.fixed_dictionaries({"gpu_mib": st.sampled_from([256, 4 * GIB, 5 * GIB + 1, 20 * GIB, 32 * GIB])}),
    st.fixed_dictionaries({"share": st.sampled_from([(1, 8), (1, 2)])}),
)
submits = st.fixed_dictionaries(
    {
        "size": sizes,
        "limit": st.integers(1, 40),
        "user": st.sampled_from(["ann", "bob"]),
        "group": st.sampled_from(["a", "b", "c"]),
        "priority": st.sampled_from(list(CLASSES)),
        "cpus_milli": st.sampled_from([0, 1000, 9000]),
        "window": st.sampled_from([None, None, None, "night"]),
        "held": st.sampled_from(["", "", "", "", "by ann"]),
        "back_off": st.sampled_from([0, 0, 0, 7]),
    }
)
steps = st.one_of(
    submits,
    submits,
    submits,
    st.tuples(st.just("wait"), st.integers(1, 15)),
    st.tuples(st.just("end"), st.integers(0, 5)),
)
WINDOWS = {"night": tuple((start, start + 12) for start in range(5, 4000, 30))}


class History:
    """One pool lived through step by step; leases end `late` seconds after their limit."""

    def __init__(self, pool, *, late=0, slots=None):
        cards = pool.gpus(3, nodes=2)
        limits = UserLimits(gpu_milli=4000, running_jobs=3, sessions=2, job_time=35)
        groups = [
            pool.group("a", 3, limit=5, quota={"cpus_milli": 20_000}, user=limits),
            pool.group("b", 1, parent="a", lend=0.5),
            pool.group("c", 2, limit=4),
        ]
        self.pool, self.late = pool, late
        self.standing = Standing()
        self.now = self.number = 0
        self.moves = ()
        self.only_jobs = True
        self.snapshot = pool.snapshot(
            gpus=cards,
            groups=groups,
            priorities=CLASSES,
            windows=WINDOWS,
            settings=Settings(promises=4, promises_per_group=3, slots=slots, host="here", borrow_max_time=12),
        )

    def submit(self, kind, wanted):
        self.number += 1
        self.only_jobs = self.only_jobs and kind == "job"
        work = self.pool.job(
            self.number,
            kind=kind,
            limit=wanted["limit"],
            user=wanted["user"],
            group=wanted["group"],
            priority=wanted["priority"],
            cpus_milli=wanted["cpus_milli"],
            window=wanted["window"] if kind == "job" else None,
            held=wanted["held"],
            not_before=self.now + wanted["back_off"] if wanted["back_off"] else 0,
            submitted=self.now,
            **wanted["size"],
        )
        self.snapshot = replace(self.snapshot, waiting=(*self.snapshot.waiting, work))

    def wait(self, seconds, quickly):
        """Let time pass, and decide whenever something ends or is due, as a service does."""
        until = self.now + seconds
        while self.now < until:
            ends = [lease.end + self.late for lease in self.snapshot.leases]
            dues = [promise.start for promise in self.snapshot.promises]
            self.pass_to(min([until, *(time for time in ends + dues if time > self.now)]))
            self.decide(quickly)

    def pass_to(self, time):
        self.now = time
        kept = tuple(lease for lease in self.snapshot.leases if lease.end + self.late > self.now)
        self.snapshot = replace(self.snapshot, leases=kept)

    def end(self, index, _):
        leases = self.snapshot.leases
        if leases:
            gone = index % len(leases)
            self.snapshot = replace(self.snapshot, leases=leases[:gone] + leases[gone + 1 :])

    def decide(self, quickly):
        """Plan and fill, check both, record one of them."""
        whole, quick = plan(self.snapshot, self.now), fill(self.snapshot, self.now)
        assert whole == plan(self.snapshot, self.now)
        assert quick == fill(self.snapshot, self.now, self.standing)
        assert quick.starts == whole.starts[: len(quick.starts)]
        assert quick.verdicts == {}
        self.check_promises(whole)
        self.check_promises(quick)
        self.check_verdicts(whole)
        self.snapshot = self.pool.after(self.snapshot, quick if quickly else whole, self.now)
        self.check_leases()
        self.moves += whole.moves

    def check_promises(self, decided):
        begun = {start.work for start in decided.starts}
        waiting = {work.id: work for work in self.snapshot.waiting}
        kept = {promise.work: promise.start for promise in decided.promises}
        moved = {move.work: move for move in decided.moves}
        assert not begun & kept.keys()
        assert kept.keys() <= waiting.keys()
        assert len(kept) <= self.snapshot.settings.promises
        assert max(Counter(waiting[id_].group for id_ in kept).values(), default=0) <= 3
        for promise in self.snapshot.promises:
            work = waiting.get(promise.work)
            if work is None or work.held or promise.work in begun:
                continue
            start = kept[promise.work]
            if start > max(promise.start, self.now):
                assert (moved[promise.work].was, moved[promise.work].now) == (promise.start, start)
                assert moved[promise.work].cause

    def check_verdicts(self, decided):
        begun = {start.work for start in decided.starts}
        waiting = [work.id for work in self.snapshot.waiting if work.id not in begun]
        assert sorted(decided.verdicts) == sorted(waiting)
        for verdict in decided.verdicts.values():
            told = explain(verdict, self.snapshot)
            assert told.message
            assert told.clears
            if verdict.reason in NO_START:
                assert verdict.expected_start is None
            else:
                assert verdict.expected_start > self.now
                assert verdict.position is not None

    def check_leases(self):
        on_card = {gpu.uuid: [] for gpu in self.snapshot.gpus}
        held = Counter()
        for lease in self.snapshot.leases:
            held[lease.group] += lease.placement.gpu_milli
            if lease.kind == "session" or lease.end - self.snapshot.settings.borrow_max_time > self.now:
                held[lease.group, "lasting"] += lease.placement.gpu_milli
            held[lease.group, lease.user, "gpus"] += lease.placement.gpu_milli
            held[lease.group, lease.user, lease.kind] += 1
            held["cpus", lease.placement.nodes] += lease.request.cpus_milli
            held["slots"] += lease.kind == "job"
            if lease.priority == "high" and lease.kind == "job":
                held[lease.user, "high"] += 1
            for share in lease.placement.gpus:
                on_card[share.uuid].append((lease, share.mib))
        for shares in on_card.values():
            assert sum(mib for _, mib in shares) <= self.pool.card
            assert len(shares) <= 1 or not any(lease.whole for lease, _ in shares)
            assert len({lease.kind for lease, _ in shares}) <= 1
        for name, group in self.snapshot.groups.items():
            owed = group.quota.quota["gpu_milli"]
            assert held[name, "lasting"] <= owed
            for user in ("ann", "bob"):
                if name == "a":
                    assert held[name, user, "gpus"] <= 4000
                    assert held[name, user, "job"] <= 3
                    assert held[name, user, "session"] <= 2
        in_a = held["a"] + max(0, held["b"] - 500)
        assert not self.only_jobs or (in_a <= 5000 and held["c"] <= 4000)
        assert max(held["ann", "high"], held["bob", "high"]) <= 1
        assert self.snapshot.settings.slots is None or held["slots"] <= self.snapshot.settings.slots


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(steps, st.booleans()), max_size=25))
def test_without_late_ends_and_sessions_a_promise_moves_only_for_what_goes_before_it(pool, story):
    history = History(pool)
    for step, quickly in story:
        if isinstance(step, dict):
            history.submit("job", step)
        else:
            getattr(history, step[0])(step[1], quickly)
        history.decide(quickly)
    causes = ("of higher class", "inside quota of")
    assert all(any(cause in move.cause for cause in causes) for move in history.moves)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(steps, st.booleans(), st.booleans()), max_size=25),
    st.sampled_from([0, 3, 8]),
    st.sampled_from([None, 3]),
)
def test_invariants_hold_whatever_happens(pool, story, late, slots):
    history = History(pool, late=late, slots=slots)
    for step, session, quickly in story:
        if isinstance(step, dict):
            history.submit("session" if session else "job", step)
        else:
            getattr(history, step[0])(step[1], quickly)
        history.decide(quickly)


tiny = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 12)), min_size=1, max_size=5)
running = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=5)


@settings(max_examples=200, deadline=None)
@given(tiny, running)
def test_each_start_is_the_first_that_delays_nobody_before_it(pool, waiting, ends):
    cards = pool.gpus(3, nodes=2)
    leases = [
        pool.lease(pool.job(100 + card, user="bob"), [cards[card]], end) for card, end in dict(ends).items()
    ]
    works = [pool.job(n, gpus, limit) for n, (gpus, limit) in enumerate(waiting, 1)]
    decided = plan(pool.snapshot(works, leases, gpus=cards), 0)
    busy = {card.uuid: [] for card in cards}
    for lease in leases:
        busy[lease.placement.gpus[0].uuid].append((0, lease.end))
    starts = {start.work: (0, start.placement) for start in decided.starts}
    starts.update({promise.work: (promise.start, promise.placement) for promise in decided.promises})
    for work in works:
        start, placement = starts[work.id]
        assert start == first_start(cards, busy, work)
        for share in placement.gpus:
            busy[share.uuid].append((start, start + work.limit))


def first_start(cards, busy, work):
    """Try every second and every node."""
    for time in range(200):
        for node in ("node1", "node2"):
            free = [
                card
                for card in cards
                if card.node == node
                and all(time >= last or time + work.limit <= first for first, last in busy[card.uuid])
            ]
            if len(free) >= work.request.gpus:
                return time
    raise AssertionError("never")


def test_who_borrows_moves_no_promise_of_a_long_job_of_its_group(pool):
    """It may not borrow itself, and is promised the card of the first; a short one would borrow then."""
    jobs = [pool.job(1, limit=10), pool.job(2, limit=100, submitted=1), pool.job(3, limit=20, submitted=2)]
    settings = Settings(promises=4, promises_per_group=3, borrow_max_time=50)
    groups = [pool.group("a", 1), pool.group("b", 1)]
    snapshot = pool.snapshot(jobs, gpus=pool.gpus(2), groups=groups, settings=settings)
    begun = pool.after(snapshot, plan(snapshot, 0), 0)
    later = replace(begun, leases=tuple(lease for lease in begun.leases if lease.end > 10))
    assert 2 in {start.work for start in plan(later, 10).starts}
