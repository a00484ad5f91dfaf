"""What went wrong in other schedulers, each as a case; and values that are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jupyter_gpupool.scheduler.back_off import back_off
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Budget, Reason, Settings, Usage
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.ranking import Ranking
from tests.scheduler.told import started

NANO = 10**9
HOUR = 3600


class TestAmounts:
    def test_a_tenth_and_two_tenths_are_three_tenths(self, pool):
        waiting = [pool.job(1, share=(1, 10)), pool.job(2, share=(2, 10)), pool.job(3, share=(1, 1000))]
        decided = plan(pool.snapshot(waiting, groups=[pool.group("a", 0.3, limit=0.3)]), 0)
        assert started(decided) == [1, 2]
        assert decided.verdicts[3].reason is Reason.GROUP_QUOTA

    def test_so_many_fit_on_a_card_as_fit_in_its_memory(self, pool):
        """23 times 2000 MiB are 46000 of 46068: a 24th does not fit, however its part is rounded."""
        card = (replace(pool.gpus(1)[0], memory_mib=46_068),)
        waiting = [pool.job(n, gpu_mib=2000) for n in range(1, 25)]
        decided = plan(pool.snapshot(waiting, gpus=card), 0)
        assert started(decided) == list(range(1, 24))

    def test_each_card_of_a_request_is_counted(self, pool):
        decided = plan(pool.snapshot([pool.job(1, 2), pool.job(2)], groups=[pool.group("a", 2, limit=2)]), 0)
        assert started(decided) == [1]

    def test_two_groups_with_one_and_a_half_of_three_cards_use_all_three(self, pool):
        groups = [pool.group("a", 1.5), pool.group("b", 1.5)]
        waiting = [pool.job(n, group="ab"[n % 2], limit=HOUR) for n in range(1, 5)]
        decided = plan(pool.snapshot(waiting, gpus=pool.gpus(3), groups=groups), 0)
        assert len(started(decided)) == 3


def test_a_user_never_comes_before_one_of_a_group_that_used_less(pool):
    """A owns 3 and used 6, of which a1 used 2 and a2 4; B owns 1 and used 1: b1, then a1, then a2."""
    usage = Usage(
        {"a": 6 * NANO, "b": NANO}, {("a", "a1"): 2 * NANO, ("a", "a2"): 4 * NANO, ("b", "b1"): NANO}
    )
    waiting = [
        pool.job(1, user="a2"),
        pool.job(2, user="a1"),
        pool.job(3, group="b", user="b1", submitted=9),
    ]
    groups = [pool.group("a", 3), pool.group("b", 1)]
    snapshot = pool.snapshot(waiting, groups=groups, usage=usage)
    board = Board(snapshot, 0)
    ranking = Ranking(board, snapshot.waiting, lambda work: True)
    assert [work.user for work in ranking] == ["b1", "a1", "a2"]


class TestNobodyStarves:
    def test_the_head_of_a_group_that_cannot_run_blocks_no_other_group(self, pool):
        groups = [pool.group("a", 2, limit=2), pool.group("b", 2)]
        running = [pool.lease(pool.job(9), pool.gpus(4)[:1], 50)]
        waiting = [pool.job(1, 2, priority="high"), pool.job(2, group="b", priority="low", limit=5000)]
        assert started(plan(pool.snapshot(waiting, running, groups=groups), 0)) == [2]

    @pytest.mark.parametrize("decide", [plan, fill])
    def test_a_stream_of_small_jobs_keeps_no_large_one_waiting_past_its_promise(self, pool, decide):
        """Eight cards are full; each minute two small jobs come and fill what is free."""
        draw, cards, now = Random(5), pool.gpus(8), 0
        running = [pool.lease(pool.job(90 + n), [cards[n]], 60 * (n + 1)) for n in range(8)]
        snapshot = pool.snapshot([pool.job(1, 8, limit=600)], running, gpus=cards)
        first = None
        for now in range(0, 1200, 60):
            kept = tuple(one for one in snapshot.leases if one.end > now)
            small = [pool.job(100 + now + n, limit=draw.randrange(60, 900), submitted=now) for n in range(2)]
            snapshot = replace(snapshot, leases=kept, waiting=(*snapshot.waiting, *small))
            decided = decide(snapshot, now) if now else plan(snapshot, now)
            assert decided.moves == ()
            if 1 in started(decided):
                break
            (start,) = [one.start for one in decided.promises if one.work == 1]
            first = first or start
            snapshot = pool.after(snapshot, decided, now)
        assert now <= first == 480


class TestBudgets:
    @pytest.mark.parametrize("decide", [plan, fill])
    def test_one_that_is_exhausted_stops_nothing(self, pool, decide):
        cards = pool.gpus(4)
        running = [
            pool.lease(pool.job(9, resumable=True, limit=9000), cards[:2], 9 * HOUR),
            pool.lease(pool.session(8, user="bob"), cards[2:3], 9 * HOUR),
        ]
        budgets = {"a": Budget(1000 * HOUR, 5000 * HOUR, (20 * HOUR,))}
        decided = decide(pool.snapshot([pool.job(1)], running, budgets=budgets), HOUR)
        assert (decided.stops, decided.starts) == ((), ())


class Site:
    """A pool played pass by pass: who is asked leaves at the end of its grace, rests, and comes again."""

    def __init__(self, pool, groups, cards, **more):
        self.pool, self.now = pool, 0
        self.works, self.stopped = {}, {}
        self.snapshot = pool.snapshot(
            gpus=pool.gpus(cards), groups=groups, settings=Settings(min_run_time=60), **more
        )

    def submit(self, *works):
        self.snapshot = replace(self.snapshot, waiting=(*self.snapshot.waiting, *works))
        self.works.update({work.id: work for work in works})

    def play(self, seconds, step=20):
        """Return who was asked to stop meanwhile."""
        times = range(self.now, self.now + seconds, step)
        self.now = times[-1] + step
        return [lease for now in times for lease in self.decide(now)]

    def decide(self, now):
        left, gone = [], []
        for lease in self.snapshot.leases:
            is_gone = lease.asked is not None and now >= lease.asked + lease.grace
            (gone if is_gone else left).append(lease)
        back = [self._again(lease, now) for lease in gone]
        waiting = sorted((*self.snapshot.waiting, *back), key=lambda work: (work.submitted, work.id))
        self.snapshot = replace(self.snapshot, leases=tuple(left), waiting=tuple(waiting))
        decided = plan(self.snapshot, now)
        asked = {stop.lease for stop in decided.stops}
        self.snapshot = self.pool.after(self.snapshot, decided, now)
        leases = [replace(one, asked=now) if one.id in asked else one for one in self.snapshot.leases]
        self.snapshot = replace(self.snapshot, leases=tuple(leases))
        return sorted(asked)

    def _again(self, lease, now):
        self.stopped[lease.work] = self.stopped.get(lease.work, 0) + 1
        return replace(self.works[lease.work], not_before=now + back_off(self.stopped[lease.work]))


class TestNobodyIsStoppedInTurn:
    """What was taken back is not taken again, unless something new comes."""

    def endless(self, pool, first, group, many, **more):
        common = {"limit": 10**6, "resumable": True, "grace": 20, "user": f"u{group}", "submitted": first}
        return [pool.job(first + n, group=group, **{**common, **more}) for n in range(many)]

    def test_two_groups_that_both_want_all(self, pool):
        site = Site(pool, [pool.group("a", 2), pool.group("b", 2)], 4)
        site.submit(*self.endless(pool, 10, "a", 6))
        assert site.play(200) == []
        site.submit(*self.endless(pool, 20, "b", 6))
        assert len(site.play(300)) == 2
        assert site.play(3000) == []
        held = [one.group for one in site.snapshot.leases]
        assert sorted(held) == ["a", "a", "b", "b"]

    def test_weight_or_quota_of_nothing_is_no_reason_either(self, pool):
        groups = [pool.group("a", 0, weight=0), pool.group("b", 0), pool.group("c", 1)]
        site = Site(pool, groups, 3)
        site.submit(*self.endless(pool, 10, "a", 3), *self.endless(pool, 20, "b", 3))
        site.play(200)
        site.submit(*self.endless(pool, 30, "c", 2))
        assert len(site.play(300)) == 1
        assert site.play(3000) == []

    @pytest.mark.parametrize("seed", range(10))
    def test_whatever_the_groups(self, pool, seed):
        draw = Random(seed)
        parents = {"b": draw.choice(["pool", "a"]), "d": draw.choice(["pool", "c"])}
        groups = [
            pool.group(
                name,
                draw.choice([0, 1, 2]),
                parents.get(name, "pool"),
                lend=draw.choice([None, None, 0, 1]),
            )
            for name in "abcd"
        ]
        site = Site(pool, groups, 4)
        for first, name in enumerate(draw.sample("abcd", 4), 1):
            size = draw.choice([{"gpus": 1}, {"gpus": 2}, {"gpu_mib": 20_480}])
            site.submit(*self.endless(pool, 100 * first, name, draw.randint(1, 4), **size))
            site.play(150)
        site.play(1500)
        assert site.play(2000) == []
