"""Promises: to whom they are given, that they are kept, and for which causes they move."""

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.model import (
    GpuShare,
    Node,
    Placement,
    Promise,
    Reason,
    Reservation,
    Settings,
    UserLimits,
)
from jupyter_gpupool.scheduler.plan import fill, plan
from tests.scheduler.told import expected, promised, reasons, started


def test_promises_are_bounded_and_shared_between_groups(pool):
    cards = pool.gpus(1)
    groups = [pool.group("a"), pool.group("b")]
    running = pool.lease(pool.job(1), cards, 50)
    waiting = [pool.job(n) for n in range(2, 6)] + [pool.job(n, group="b") for n in range(6, 9)]
    few = Settings(promises=3, promises_per_group=2)
    decided = plan(pool.snapshot(waiting, [running], gpus=cards, groups=groups, settings=few), 0)
    assert len(promised(decided)) == 3
    assert len({2, 3, 4, 5} & promised(decided).keys()) <= 2
    assert all(start is not None for start in expected(decided).values())


class TestPromises:
    """A promise stays where it is; only a named event moves it later."""

    def base(self, pool, **more):
        self.cards = pool.gpus(2)
        self.running = pool.lease(pool.job(1, 2), self.cards, 60)
        first = pool.snapshot([pool.job(2, 2)], [self.running], gpus=self.cards, **more)
        return pool.after(first, plan(first, 0), 0)

    def test_work_that_comes_later_does_not_move_it(self, pool):
        settled = self.base(pool)
        later = replace(settled, waiting=(*settled.waiting, pool.job(3, 2, user="bob", submitted=9)))
        decided = plan(later, 10)
        assert promised(decided) == {2: 60, 3: 160}
        assert decided.moves == ()

    def test_a_higher_class_that_pays_more_goes_before_it_and_is_named(self, pool):
        settled = self.base(pool)
        high = pool.job(3, 2, priority="high", submitted=9)
        later = replace(settled, waiting=(*settled.waiting, high))
        decided = plan(later, 10)
        assert promised(decided) == {3: 60, 2: 160}
        assert [(m.work, m.cause) for m in decided.moves] == [(2, "job 3 of higher class high")]
        free = {**later.priorities, "high": replace(later.priorities["high"], charge_milli=1000)}
        assert promised(plan(replace(later, priorities=free), 10)) == {2: 60, 3: 160}

    def test_work_inside_quota_goes_before_one_that_would_borrow_and_is_named(self, pool):
        groups = [pool.group("a", 0), pool.group("b", 2)]
        settled = self.base(pool, groups=groups)
        owed = pool.job(3, 2, group="b", submitted=9)
        later = replace(settled, waiting=(*settled.waiting, owed))
        decided = plan(later, 10)
        assert promised(decided) == {3: 60, 2: 160}
        assert [(m.work, m.cause) for m in decided.moves] == [(2, "job 3 inside quota of b")]
        both = pool.after(later, plan(later, 10), 10)
        assert plan(both, 11).moves == plan(both, 12).moves == ()

    def test_a_start_at_once_too_may_go_before_it(self, pool):
        cards = pool.gpus(2)
        groups = [pool.group("a", 0), pool.group("b", 1)]
        running = pool.lease(pool.job(1), cards[:1], 60)
        first = pool.snapshot([pool.job(2, 2)], [running], gpus=cards, groups=groups)
        settled = pool.after(first, plan(first, 0), 0)
        later = replace(settled, waiting=(*settled.waiting, pool.job(3, 1, 500, group="b", submitted=9)))
        for decided in (plan(later, 10), fill(later, 10)):
            assert started(decided) == [3]
            assert promised(decided) == {2: 510}
            assert [(m.work, m.cause) for m in decided.moves] == [(2, "job 3 inside quota of b")]

    @pytest.mark.parametrize("decide", [plan, fill])
    def test_one_that_is_due_too_gives_way(self, pool, decide):
        """It could start now; a job that goes before it takes its card at once, though no promise is free."""
        settled = self.base(pool, settings=Settings(promises=1))
        high = pool.job(3, 2, priority="high", submitted=9)
        later = replace(settled, leases=(), waiting=(*settled.waiting, high))
        decided = decide(later, 60)
        assert started(decided) == [3]
        assert promised(decided) == {2: 160}
        assert [move.cause for move in decided.moves] == ["job 3 of higher class high"]

    def test_a_reservation_is_named(self, pool):
        settled = self.base(pool)
        kept = Reservation(7, frozenset({self.cards[0].uuid}), 50, 200)
        decided = plan(replace(settled, reservations=(kept,)), 10)
        assert promised(decided) == {2: 200}
        assert decided.moves[0].cause == "maintenance 7"
        decided = plan(replace(settled, reservations=(replace(kept, groups=frozenset({"b"})),)), 10)
        assert decided.moves[0].cause == "reservation 7"
        mine = replace(kept, groups=frozenset({"a"}))
        assert plan(replace(settled, reservations=(mine,)), 10).moves == ()

    def test_an_early_end_makes_it_earlier(self, pool):
        settled = replace(self.base(pool), leases=())
        assert started(plan(settled, 10)) == [2]
        assert started(fill(settled, 10)) == [2]
        partly = replace(self.base(pool), leases=(pool.lease(pool.job(1, 2), self.cards, 40),))
        decided = plan(partly, 10)
        assert promised(decided) == {2: 40}
        assert decided.moves == ()

    def test_it_starts_when_due(self, pool):
        settled = replace(self.base(pool), leases=())
        assert started(fill(settled, 60)) == [2]

    def test_a_late_end_moves_it_and_is_named(self, pool):
        decided = plan(self.base(pool), 75)
        assert promised(decided) == {2: 76}
        assert [(move.work, move.was, move.now) for move in decided.moves] == [(2, 60, 76)]
        assert decided.moves[0].cause == "late end of job 1"

    def test_a_late_start_moves_what_comes_after_it_and_is_named(self, pool):
        settled = self.base(pool)
        later = replace(settled, waiting=(*settled.waiting, pool.job(3, 2, submitted=9)))
        both = pool.after(later, plan(later, 10), 10)
        assert [(promise.work, promise.start) for promise in both.promises] == [(2, 60), (3, 160)]
        decided = plan(replace(both, leases=()), 75)
        assert started(decided) == [2]
        assert promised(decided) == {3: 175}
        assert decided.moves[0].cause == "late start of job 2"

    def test_an_extension_is_named(self, pool):
        settled = replace(self.base(pool), leases=(replace(self.running, end=90),))
        decided = plan(settled, 10)
        assert promised(decided) == {2: 90}
        assert decided.moves[0].cause == "extension of job 1"

    def test_a_lost_card_is_named(self, pool):
        cards = pool.gpus(2, nodes=2)
        running = [pool.lease(pool.job(1, 2), cards[:2], 60), pool.lease(pool.job(9, 2), cards[2:], 300)]
        first = pool.snapshot([pool.job(2, 2)], running, gpus=cards)
        settled = pool.after(first, plan(first, 0), 0)
        drained = replace(settled, gpus=(replace(cards[0], available=False), *cards[1:]))
        decided = plan(drained, 10)
        assert promised(decided) == {2: 300}
        assert decided.moves[0].cause == "card 0 of node1 is not available"
        gone = replace(settled, gpus=cards[1:])
        assert plan(gone, 10).moves[0].cause == f"card {cards[0].uuid} was lost"

    def test_a_policy_change_is_named(self, pool):
        cards = pool.gpus(2)
        groups = [pool.group("a", 2), pool.group("b", 1)]
        running = [
            pool.lease(pool.job(1), cards[:1], 60),
            pool.lease(pool.job(9, group="b"), cards[1:], 100),
        ]
        first = pool.snapshot([pool.job(2, group="a", limit=10)], running, gpus=cards, groups=groups)
        settled = pool.after(first, plan(first, 0), 0)
        assert settled.promises[0].start == 60
        window = replace(settled.waiting[0], window="night")
        changed = replace(settled, waiting=(window,), windows={"night": ((500, 600),)})
        decided = plan(changed, 10)
        assert promised(decided) == {2: 500}
        assert decided.moves[0].cause == "policy change"

    def test_a_session_comes_before_it_and_is_named(self, pool):
        cards = pool.gpus(2)
        running = pool.lease(pool.job(1), cards[:1], 60)
        first = pool.snapshot([pool.job(2, 2)], [running], gpus=cards)
        settled = pool.after(first, plan(first, 0), 0)
        more = replace(settled, waiting=(*settled.waiting, pool.session(3, limit=500)))
        decided = plan(more, 10)
        assert started(decided) == [3]
        assert promised(decided) == {2: 510}
        assert decided.moves[0].cause == "session 3"
        quick = fill(more, 10)
        assert (started(quick), promised(quick), quick.moves) == ([3], {2: 510}, decided.moves)

    def test_a_session_that_fits_elsewhere_leaves_promises_alone(self, pool):
        cards = pool.gpus(3)
        running = pool.lease(pool.job(1), cards[:1], 60)
        first = pool.snapshot([pool.job(2, 2, limit=50)], [running], gpus=cards[:2])
        settled = pool.after(first, plan(first, 0), 0)
        more = replace(settled, gpus=cards, waiting=(*settled.waiting, pool.session(3, limit=500)))
        decided = plan(more, 10)
        assert 3 in started(decided)
        assert decided.moves == ()

    @pytest.mark.parametrize("change", [{"held": "by ann"}, {"invalid": "no script"}, {"limit": 10**9}])
    def test_it_ends_when_the_work_takes_no_part(self, pool, change):
        limits = UserLimits(job_time=1000)
        settled = self.base(pool, groups=[pool.group("a", user=limits)])
        assert plan(settled, 0).promises != ()
        ended = replace(settled, waiting=(replace(settled.waiting[0], **change),))
        assert plan(ended, 0).promises == ()

    def test_a_cancelled_work_frees_its_promise(self, pool):
        settled = replace(self.base(pool), waiting=(pool.job(3),))
        assert promised(plan(settled, 10)) == {3: 60}

    def test_a_user_limit_keeps_it(self, pool):
        limited = {"a": pool.group("a", user=UserLimits(running_jobs=1))}
        decided = plan(replace(self.base(pool), groups=limited), 10)
        assert reasons(decided) == {2: Reason.USER_LIMIT}
        assert promised(decided) == {2: 60}

    def test_its_slot_is_given_again_only_by_the_next_plan(self, pool):
        settled = self.base(pool, settings=Settings(promises=1))
        more = replace(settled, leases=(), waiting=(*settled.waiting, pool.job(3, 2), pool.job(4, 2)))
        first = plan(more, 10)
        assert started(first) == [2]
        assert first.promises == ()
        assert promised(plan(pool.after(more, first, 10), 10)) == {3: 110}

    def test_a_stranger_promise_is_dropped(self, pool):
        settled = self.base(pool)
        odd = Promise(99, 10, settled.promises[0].placement, 0)
        assert promised(plan(replace(settled, promises=(odd,)), 0)) == {2: 60}


class TestRoomThatAPromiseLeaves:
    """A job passed over in favour of a promise starts when the promise turns out not to need the room."""

    def base(self, pool, group):
        """Job 1 is promised both cards of node 1 from 50 on; job 2 comes first but fits only there."""
        self.cards = pool.gpus(2, model="A") + pool.gpus(2, model="B", first=2)
        running = [
            pool.lease(pool.job(8), self.cards[:1], 50),
            pool.lease(pool.job(9, 2), self.cards[2:], 500),
        ]
        nodes = [Node("node1", 64_000, 1024), Node("node2", 4_000, 1024)]
        settings = Settings(promises=1)
        groups = [pool.group("a"), pool.group("b")]
        low = pool.job(1, 2, priority="low")
        first = pool.snapshot([low], running, gpus=self.cards, nodes=nodes, groups=groups, settings=settings)
        settled = pool.after(first, plan(first, 0), 0)
        long = pool.job(2, 1, 1000, cpus_milli=8000, group=group)
        return replace(settled, waiting=(low, long))

    def test_nothing_is_left_while_it_is_needed(self, pool):
        snapshot = self.base(pool, "a")
        assert started(plan(snapshot, 10)) == started(fill(snapshot, 10)) == []

    @pytest.mark.parametrize("group", ["a", "b"])
    def test_it_starts_elsewhere(self, pool, group):
        snapshot = self.base(pool, group)
        snapshot = replace(snapshot, leases=snapshot.leases[:1])
        assert started(plan(snapshot, 10)) == [1, 2]

    def test_the_fast_pass_sees_groups_that_it_had_left_out(self, pool):
        snapshot = self.base(pool, "b")
        assert started(fill(replace(snapshot, leases=snapshot.leases[:1]), 10)) == [1, 2]

    def test_it_is_promised_sooner_elsewhere(self, pool):
        snapshot = self.base(pool, "a")
        shorter = replace(snapshot.leases[1], end=20)
        decided = plan(replace(snapshot, leases=(snapshot.leases[0], shorter)), 10)
        assert started(decided) == [2]
        assert promised(decided) == {1: 20}


def test_a_late_end_elsewhere_is_named_when_it_holds_the_last_slot(pool):
    cards = pool.gpus(2, nodes=2)
    groups = [pool.group("a"), pool.group("b")]
    running = pool.lease(pool.job(9, group="b", user="bob"), cards[3:], 60)
    first = pool.snapshot(
        [pool.job(1)], [running], gpus=cards, groups=groups, settings=Settings(slots=1, host="here")
    )
    settled = pool.after(first, plan(first, 0), 0)
    decided = plan(settled, 65)
    assert promised(decided) == {1: 66}
    assert decided.moves[0].cause == "late end of job 9"


def test_who_may_borrow_is_kept_after_who_may_not_where_both_start_at_once(pool):
    """In the order of numbers the first would take the quota that the second was promised."""
    cards = pool.gpus(3)
    borrows, lasts = pool.job(1, resumable=True), pool.job(2, limit=20_000)
    running = [
        pool.lease(pool.session(7), cards[:1], 5000),
        *(pool.lease(pool.job(8 + card, group="b"), cards[card : card + 1], 200) for card in (1, 2)),
    ]
    shares = [(GpuShare(card.uuid, pool.card),) for card in cards]
    promises = tuple(
        Promise(work.id, 200, Placement(("node1",), shares[work.id], 1000, "training"), 0)
        for work in (borrows, lasts)
    )
    groups = [pool.group("a", 2), pool.group("b", 1)]
    decided = plan(pool.snapshot([borrows, lasts], running, cards, groups, promises=promises), 100)
    assert decided.moves == ()
    assert {one.work: one.start for one in decided.promises} == {1: 200, 2: 200}


@pytest.mark.parametrize("decide", [plan, fill])
def test_who_is_promised_a_start_now_gets_it_after_another_that_starts_before_it(pool, decide):
    cards = pool.gpus(2)
    first, due = pool.job(1), pool.job(2)
    many = [pool.job(number, 2, limit=200) for number in range(3, 15)]
    placement = Placement(("node1",), (GpuShare(cards[1].uuid, pool.card),), 1000, "training")
    snapshot = pool.snapshot(
        [first, due, *many],
        gpus=cards,
        promises=(Promise(2, 50, placement, 0),),
        settings=Settings(promises=1),
    )
    assert started(decide(snapshot, 50)) == [1, 2]


@pytest.mark.parametrize("decide", [plan, fill])
def test_a_promised_job_starts_on_what_its_promise_keeps_though_a_like_one_finds_nothing(pool, decide):
    cards = pool.gpus(2)
    promised, like = (pool.job(1, limit=100, cpus_milli=40_000), pool.job(2, limit=60, cpus_milli=40_000))
    many = [pool.job(number, 2, limit=500) for number in range(3, 15)]
    placement = Placement(("node1",), (GpuShare(cards[0].uuid, pool.card),), 1000, "training")
    waiting, made = [promised, like, *many], (Promise(1, 50, placement, 0),)
    snapshot = pool.snapshot(waiting, gpus=cards, promises=made, settings=Settings(promises=1))
    assert started(decide(snapshot, 10)) == [1]
