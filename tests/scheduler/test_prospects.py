"""What would happen to each of several requests for sessions, if it alone were made now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.admission import prospects
from jupyter_gpupool.scheduler.model import Reason, UserLimits
from jupyter_gpupool.scheduler.plan import plan
from jupyter_gpupool.scheduler.reasons import explain

NOW, HOUR = 1_800_000_000, 3600


def asked(pool, *works, waiting=(), leases=(), **more):
    return prospects(pool.snapshot(waiting, leases, **more), NOW, works)


def test_each_is_judged_alone(pool):
    cards = pool.gpus(1)
    whole, half = pool.session(101), pool.session(102, gpu_mib=pool.card // 2)
    found = asked(pool, whole, half, whole, gpus=cards)
    assert [prospect.placement.gpus[0].uuid for prospect in found] == [cards[0].uuid] * 3


def test_one_that_waits_says_why_and_until_when(pool):
    cards = pool.gpus(1)
    holder = pool.lease(pool.session(9, user="bob"), cards, NOW + HOUR)
    [found] = asked(pool, pool.session(101), leases=[holder], gpus=cards)
    assert (found.verdict.reason, found.verdict.expected_start) == (Reason.RESOURCES, NOW + HOUR)


def test_sessions_that_wait_are_before_it_and_jobs_are_not(pool):
    cards = pool.gpus(1)
    holder = pool.lease(pool.session(9, user="bob"), cards, NOW + HOUR)
    waiting = [pool.session(1, limit=HOUR), pool.job(2, limit=HOUR)]
    [found] = asked(pool, pool.session(101), waiting=waiting, leases=[holder], gpus=cards)
    assert (found.verdict.reason, found.verdict.position) == (Reason.PRIORITY, 2)
    assert found.verdict.expected_start == NOW + 2 * HOUR
    told = explain(found.verdict, pool.snapshot([pool.session(101)]))
    assert told.message.startswith("It is number 2 in the queue, after session 1.")


def test_requests_are_not_in_each_others_way(pool):
    cards = pool.gpus(1)
    holder = pool.lease(pool.session(9, user="bob"), cards, NOW + HOUR)
    found = asked(pool, pool.session(101), pool.session(102), leases=[holder], gpus=cards)
    assert [prospect.verdict.reason for prospect in found] == [Reason.RESOURCES] * 2
    assert [prospect.verdict.position for prospect in found] == [1, 1]


def test_what_can_never_be_is_refused_with_the_numbers(pool):
    limits = UserLimits(gpu_milli=1000)
    [found] = asked(pool, pool.session(101, 2), groups=[pool.group("a", user=limits)])
    assert (found.refusal.code, found.refusal.used, found.refusal.limit) == ("exceeds_limit", 2000, 1000)


def test_the_users_own_limit(pool):
    cards = pool.gpus(2)
    mine = pool.lease(pool.session(9), cards[:1], NOW + HOUR)
    group = pool.group("a", user=UserLimits(sessions=1))
    [found] = asked(pool, pool.session(101), leases=[mine], groups=[group], gpus=cards)
    assert found.verdict.reason is Reason.USER_LIMIT
    assert (found.verdict.facts["used"], found.verdict.facts["limit"]) == (1, 1)


def test_a_group_that_nobody_knows_has_cpus_only(pool):
    found = asked(pool, pool.session(101, 0, group="pool"), pool.session(102, 1, group="pool"))
    assert found[0].placement is not None
    assert found[1].refusal.code == "exceeds_limit"


@pytest.mark.parametrize("gpus", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("taken", [0, 3])
def test_it_says_what_a_plan_would_do(pool, gpus, taken):
    cards = pool.gpus(4)
    leases = [pool.lease(pool.session(90 + n, user="bob"), [cards[n]], NOW + HOUR) for n in range(taken)]
    snapshot, work = pool.snapshot([], leases, gpus=cards), pool.session(101, gpus)
    [found] = prospects(snapshot, NOW, [work])
    planned = plan(replace(snapshot, waiting=(work,)), NOW)
    assert [start.placement for start in planned.starts] == ([found.placement] if found.placement else [])
    if found.verdict:
        wanted = planned.verdicts[work.id]
        assert (found.verdict.reason, found.verdict.expected_start) == (wanted.reason, wanted.expected_start)
    if found.refusal:
        assert planned.verdicts[work.id].reason is found.refusal.reason
