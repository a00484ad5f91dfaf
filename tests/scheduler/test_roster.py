"""What is kept of the leases from pass to pass is what counting them anew would give."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.model import PriorityClass
from jupyter_gpupool.scheduler.roster import Roster

CHARGES = {"normal": 1000, "high": 2000}
PRIORITIES = {name: PriorityClass(name, 0, charge) for name, charge in CHARGES.items()}


def roster():
    return Roster(lambda lease: {"gpu_milli": lease.placement.gpu_milli}, lambda lease: lease.end)


def lease(pool, number, end, draw=random):
    job = pool.job(
        number,
        group=draw.choice("ab"),
        user=draw.choice(["ann", "bob"]),
        priority=draw.choice([*CHARGES]),
        resumable=draw.random() < 0.7,
        grace=draw.choice([30, 60]),
    )
    return pool.lease(job, pool.gpus(1), end)


def taken(lease):
    return lease.placement.gpu_milli


def charged(lease):
    return taken(lease) * CHARGES[lease.priority]


def counted(key, weight, leases):
    sums = Counter()
    for one in leases:
        sums[key(one)] += weight(one)
    return {name: amount for name, amount in sums.items() if amount}


def kept(sums):
    return {name: amounts["gpu_milli"] for name, amounts in sums.items() if amounts["gpu_milli"]}


@pytest.mark.parametrize("seed", range(5))
def test_sums_and_lists_are_those_of_the_leases_that_are_there(pool, seed):
    draw, known = random.Random(seed), roster()
    there, now = [], 0
    for number in range(1, 60):
        now += draw.randrange(5)
        there = [one for one in there if draw.random() < 0.9]
        there.append(lease(pool, number, now + draw.randrange(1, 40), draw))
        if draw.random() < 0.3:
            asked = draw.randrange(len(there))
            there[asked] = replace(there[asked], asked=now)
        if draw.random() < 0.2:
            draw.shuffle(there)
        known.turn_to(pool.snapshot(leases=there, priorities=PRIORITIES), now)
        assert kept(known.taken) == counted(lambda one: one.group, taken, there)
        assert kept(known.charged) == counted(lambda one: one.group, charged, there)
        assert kept(known.charged_by) == counted(lambda one: (one.group, one.user), charged, there)
        assert +known.running == Counter((one.group, one.user) for one in there)
        assert +known.graces == Counter(one.grace for one in there if one.resumable)
        assert known.asked == {one.id: one for one in there if one.asked is not None}
        stoppable = {one.id for one in there if one.resumable and one.asked is None}
        assert [one.id for one in known.stoppable()] == sorted(stoppable, reverse=True)


def test_only_who_came_went_changed_or_is_late_turns_over(pool):
    known = roster()
    first, second, third = (lease(pool, number, end) for number, end in ((1, 10), (2, 20), (3, 30)))

    def turn(leases, now):
        return [[one.id for one in some] for some in known.turn_to(pool.snapshot(leases=leases), now)]

    assert turn([first, second], 0) == [[], [1, 2]]
    assert turn([second, third], 5) == [[1], [3]]
    assert turn([second, third], 19) == [[], []]
    assert turn([second, third], 20) == [[2], [2]]
    assert turn([second, third], 21) == [[2], [2]]
    assert turn([third, replace(second, end=40)], 22) == [[2], [2]]
    assert turn([third], 23) == [[2], []]
