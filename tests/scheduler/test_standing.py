"""A pass decides the same with what is kept of the last one as without."""

import random
from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Budget, Usage, UserLimits
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.scheduler.timeline import Profile
from tests.benchmarks import large_pool as bench


class Days:
    """A small pool with everything switched on, to which something happens before each pass."""

    def __init__(self, seed):
        self.draw, self.now = random.Random(seed), bench.NOW
        whole = bench.everything(jobs=60, groups=6, nodes=8, seed=seed)
        self.later = list(whole.waiting[::3])
        new = {work.id for work in self.later}
        self.snapshot = replace(whole, waiting=tuple(work for work in whole.waiting if work.id not in new))
        self.carry_out(plan(self.snapshot, self.now))

    def carry_out(self, decided):
        self.snapshot = bench.carried_out(self.snapshot, decided, self.now)

    def pass_time(self):
        self.now += self.draw.choice([0, 1, 60, 130, 700, 4000])
        there = (lease for lease in self.snapshot.leases if not self.is_over(lease))
        self.snapshot = replace(self.snapshot, leases=tuple(there))

    def is_over(self, lease):
        if lease.asked is not None and lease.asked + lease.grace <= self.now:
            return True
        return lease.end <= self.now and self.draw.random() < 0.8  # the others are late

    def happen(self):
        what = self.draw.choice(["end", "end", "end", "submit", "cancel", "hold", "extend", "spend", "limit"])
        getattr(self, what)()

    def end(self):
        number = self.draw.randrange(len(self.snapshot.leases))
        self.snapshot = bench.after_one_end(self.snapshot, number)

    def submit(self):
        new, self.later = self.later[:3], self.later[3:]
        in_order = sorted((*self.snapshot.waiting, *new), key=lambda work: (work.submitted, work.id))
        self.snapshot = replace(self.snapshot, waiting=tuple(in_order))

    def cancel(self):
        self.snapshot = replace(self.snapshot, waiting=self.snapshot.waiting[1:])

    def hold(self):
        number = self.draw.randrange(len(self.snapshot.waiting))
        works = list(self.snapshot.waiting)
        works[number] = replace(works[number], held="" if works[number].held else "by ann")
        self.snapshot = replace(self.snapshot, waiting=tuple(works))

    def extend(self):
        leases = list(self.snapshot.leases)
        number = self.draw.randrange(len(leases))
        leases[number] = replace(leases[number], end=leases[number].end + self.draw.choice([-1800, 7200]))
        self.snapshot = replace(self.snapshot, leases=tuple(leases))

    def spend(self):
        group = self.draw.choice(list(self.snapshot.groups))
        usage = Usage({**self.snapshot.usage.by_group, group: self.draw.randrange(10**12)})
        spent = {
            name: Budget(one.capacity, one.spent + self.draw.randrange(one.capacity), one.ends)
            for name, one in self.snapshot.budgets.items()
        }
        self.snapshot = replace(self.snapshot, usage=usage, budgets=spent)

    def limit(self):
        user = self.draw.choice(self.snapshot.waiting).user
        most = self.draw.choice([1, 3, 20])
        users = {**self.snapshot.users, user: UserLimits(running_jobs=most)}
        self.snapshot = replace(self.snapshot, users=users)


@pytest.mark.parametrize("seed", range(6))
def test_a_pass_decides_the_same_with_what_is_kept_of_the_last_one(seed):
    days, standing = Days(seed), Standing()
    for _ in range(10):
        days.pass_time()
        days.happen()
        fresh = fill(days.snapshot, days.now)
        assert fill(days.snapshot, days.now, standing) == fresh
        assert fill(days.snapshot, days.now, standing) == fresh
        days.carry_out(fresh)


def test_what_is_kept_serves_later_passes_of_the_same_pool_only():
    days, standing = Days(1), Standing()
    board = standing.board(days.snapshot, days.now)
    days.end()
    standing.keep(board)
    assert standing.board(days.snapshot, days.now + 1) is board
    standing.keep(board)
    assert standing.board(days.snapshot, days.now) is not board
    standing.keep(board)
    days.limit()
    assert standing.board(days.snapshot, days.now) is not board


def test_nothing_is_kept_of_a_pass_that_failed(monkeypatch):
    days, standing = Days(1), Standing()
    days.carry_out(fill(days.snapshot, days.now, standing))
    days.end()
    with monkeypatch.context() as patched:
        patched.setattr(Board, "attempt", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            fill(days.snapshot, days.now, standing)
    assert fill(days.snapshot, days.now, standing) == fill(days.snapshot, days.now)


def test_what_stays_promised_stays_on_the_board():
    days, standing = Days(1), Standing()
    days.carry_out(fill(days.snapshot, days.now, standing))
    board = standing.board(days.snapshot, days.now)
    later = {one.work for one in days.snapshot.promises if one.start > days.now}
    unpaid = {id_ for id_ in later if not board.limits.is_paid(board.promised[id_].group)}
    assert board.reserved.keys() == unpaid
    assert unpaid


def test_a_profile_forgets_the_steps_of_what_was_given_back():
    profile = Profile(10)
    profile.book(0, 1000, 3)
    assert profile.at(5) == 7
    for start in range(500):
        profile.book(start, start + 1, 2)
        assert profile.at(start) == 5
        profile.book(start, start + 1, -2)
    steps = [*profile.levels(0, 2000)]
    assert len(steps) < 100
    assert {free for first, _, free in steps if first < 1000} == {7}


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 17, 19, 43])
def test_passes_that_follow_each_other_start_all_that_a_plan_starts(seed):
    """Where groups have quotas alone, and no other promise must come sooner first: that is left to a plan."""
    draw, now, standing = random.Random(seed), bench.NOW, Standing()
    pool = bench.big_snapshot(draw.choice((12, 25, 60)), draw.choice((2, 5)), 3, draw.choice((1, 2, 4)), seed)
    pool = replace(pool, settings=replace(pool.settings, promises=draw.choice((2, 5, 100))))
    pool = bench.carried_out(pool, plan(pool, now))
    for _ in range(15):
        now += draw.randrange(1, 600)
        pool = bench.without_ended(pool, now)
        for _ in range(draw.randrange(min(3, len(pool.leases)))):
            pool = bench.after_one_end(pool, draw.randrange(len(pool.leases)))
        found = fill(pool, now, standing)
        assert found.starts == plan(pool, now).starts
        pool = bench.carried_out(pool, found, now)
