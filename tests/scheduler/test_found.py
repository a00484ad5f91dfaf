"""What histories at random have found (`test_invariants`), each as the few works that show it."""

from dataclasses import replace

import pytest

from jupyter_gpupool.scheduler.model import (
    GpuShare,
    Lend,
    Partition,
    Placement,
    Promise,
    Reason,
    Settings,
    UserLimits,
)
from jupyter_gpupool.scheduler.plan import fill, plan
from tests.scheduler.told import moves, started


def promise(pool, work, card, start):
    shares = (GpuShare(card.uuid, pool.card),)
    return Promise(work.id, start, Placement((card.node,), shares, 1000, card.partition), 0)


@pytest.mark.parametrize("decide", [plan, fill])
def test_who_is_owed_a_card_that_is_only_promised_starts_there_at_once(pool, decide):
    """Not in the next pass: the promise of who borrows gives way, and nobody need be asked to stop."""
    cards = pool.gpus(2)
    owed, borrows = pool.job(1), pool.job(2, group="b", submitted=0)
    snapshot = pool.snapshot(
        [owed, borrows],
        [pool.lease(pool.job(9, group="b", resumable=True), cards[:1], 2000)],
        gpus=cards,
        groups=[pool.group("a", 1), pool.group("b", 0)],
        promises=(promise(pool, borrows, cards[1], 1000), promise(pool, owed, cards[0], 2000)),
    )
    decided = decide(snapshot, 1000)
    assert started(decided) == [1]
    assert moves(decided) == [(2, 1000, 1100, "reclaim for job 1 of a")]


def test_a_promise_that_is_due_does_not_count_against_itself(pool):
    cards = pool.gpus(1)
    first, later = pool.job(1, submitted=5), pool.job(2, group="b", submitted=0)
    snapshot = pool.snapshot(
        [first, later],
        gpus=cards,
        groups=[pool.group("a", 1), pool.group("b", 1)],
        promises=(promise(pool, first, cards[0], 10),),
    )
    decided = plan(snapshot, 10)
    assert (started(decided), moves(decided)) == ([1], [])


@pytest.mark.parametrize("holder", ["b", "top"])
def test_what_others_of_the_same_group_above_hold_is_given_back(pool, holder):
    """Also when all of them together are above what they own."""
    cards = pool.gpus(4)
    groups = [pool.group("top", 0, limit=3), pool.group("a", 1, "top"), pool.group("b", 1, "top")]
    running = [
        pool.lease(pool.job(10 + number, group=holder, resumable=True), cards[number : number + 1], 5000)
        for number in range(3)
    ]
    snapshot = pool.snapshot([pool.job(1)], running, gpus=cards, groups=groups)
    assert plan(snapshot, 10).verdicts[1].reason is Reason.RECLAIMING


@pytest.mark.parametrize("limits", [UserLimits(running_jobs=1), UserLimits(gpu_milli=1000)])
def test_a_limit_of_the_user_is_told_though_all_cards_are_away(pool, limits):
    cards = pool.gpus(1)
    running = [pool.lease(pool.job(9), cards, 60)]
    away = [replace(cards[0], available=False)]
    snapshot = pool.snapshot([pool.job(1)], running, gpus=away, groups=[pool.group("a", user=limits)])
    assert plan(snapshot, 10).verdicts[1].reason is Reason.USER_LIMIT


def test_who_is_late_to_hand_back_is_named(pool):
    lent, own = pool.gpus(1, partition="lent"), pool.gpus(1, first=2)
    work = pool.job(1)
    snapshot = pool.snapshot(
        [work],
        [pool.lease(pool.job(9, resumable=True), lent, 500)],
        gpus=[*lent, *own],
        windows={"night": ((0, 100),)},
        settings=Settings(slots=1),
        promises=(promise(pool, work, own[0], 100),),
    )
    lends = Partition("lent", frozenset({"session"}), lend=Lend("training", "night"))
    snapshot = replace(snapshot, partitions={**snapshot.partitions, "lent": lends})
    assert moves(plan(snapshot, 100)) == [(1, 100, 101, "late end of job 9")]


def test_a_session_that_takes_the_quota_of_a_promise_is_its_cause(pool):
    """It takes no card of the job's, but some of what the job is to borrow."""
    jobs = [pool.job(1, 2, limit=10, group="c"), pool.job(2, 2, limit=10, group="c")]
    cards = (*pool.gpus(2), *pool.gpus(1, partition="development", first=2))
    groups = [pool.group("b", 1), pool.group("c", 0), pool.group("d", 1, lend=0)]
    kinds = {"training": ("job",), "development": ("session",)}
    snapshot = pool.snapshot(jobs, gpus=cards, groups=groups, kinds=kinds)
    begun = pool.after(snapshot, plan(snapshot, 0), 0)
    assert [(one.work, one.start) for one in begun.promises] == [(2, 10)]
    session = pool.session(3, group="b", limit=100)
    for decide in (plan, fill):
        decided = decide(replace(begun, waiting=(*begun.waiting, session)), 1)
        assert [start.work for start in decided.starts] == [3]
        assert [(one.work, one.now, one.cause) for one in decided.moves] == [(2, 101, "session 3")]


def test_who_only_shares_the_card_of_a_promise_is_not_its_cause(pool):
    """There is room beside it: the job that was promised the room before is late."""
    card, most = pool.gpus(1), pool.card * 7 // 8
    beside = pool.lease(pool.job(9, gpu_mib=pool.card // 8, group="b"), card, 1000)
    before = pool.lease(pool.job(1, gpu_mib=most), card, 60)
    jobs = [pool.job(number, gpu_mib=most) for number in (2, 3)]
    snapshot = pool.snapshot(jobs, [beside, before], gpus=card, groups=[pool.group("a"), pool.group("b")])
    settled = pool.after(snapshot, plan(snapshot, 10), 10)
    assert [(one.work, one.start) for one in settled.promises] == [(2, 60), (3, 160)]
    decided = plan(replace(settled, leases=(beside,)), 75)
    assert started(decided) == [2]
    assert moves(decided) == [(3, 160, 175, "late start of job 2")]
