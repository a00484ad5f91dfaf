"""Cards set apart for some, or for nobody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from jupyter_gpupool.scheduler.admission import prospects
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import (
    Lend,
    Partition,
    Placement,
    Reason,
    Reservation,
    Settings,
    Snapshot,
    Work,
)
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.reasons import explain

FIRST, SECOND = "training-1-0", "training-1-1"
NO_PROMISES = Settings(promises=0)


def reserved(*cards: str, start: int = 100, end: int = 200, id: int = 1, **served: Any) -> Reservation:
    return Reservation(id, frozenset(cards), start, end, **served)


def snapshot(
    pool: Any, waiting: Iterable[Work], *reservations: Reservation, cards: int = 2, **more: Any
) -> Snapshot:
    groups = [pool.group("a"), pool.group("b")]
    found: Snapshot = pool.snapshot(
        waiting, gpus=pool.gpus(cards), groups=groups, reservations=reservations, **more
    )
    return found


def started(found: Snapshot, now: int) -> dict[int, list[str]]:
    """Return the cards of what starts, and make sure that the fast pass starts the same."""
    starts = {one.work: [share.uuid for share in one.placement.gpus] for one in plan(found, now).starts}
    assert {one.work for one in fill(found, now).starts} == starts.keys()
    return starts


def test_work_of_others_is_over_when_a_reservation_begins(pool: Any) -> None:
    mine = reserved(FIRST, SECOND, groups=frozenset({"b"}))
    assert started(snapshot(pool, [pool.job(1, limit=100)], mine), 0)
    assert not started(snapshot(pool, [pool.job(1, limit=101)], mine), 0)
    assert not started(snapshot(pool, [pool.job(1, limit=1)], mine), 150)
    assert started(snapshot(pool, [pool.job(1, limit=1)], mine), 200)
    assert not started(snapshot(pool, [pool.session(1, limit=101)], mine), 0)


def test_a_promise_and_an_estimate_stand_behind_a_reservation(pool: Any) -> None:
    mine = reserved(FIRST, SECOND, groups=frozenset({"b"}))
    waiting = [pool.job(1, limit=150)]
    assert [one.start for one in plan(snapshot(pool, waiting, mine), 0).promises] == [200]
    estimated = plan(snapshot(pool, waiting, mine, settings=NO_PROMISES), 0)
    assert estimated.verdicts[1].expected_start == 200
    (found,) = prospects(snapshot(pool, [], mine), 0, [pool.session(2, limit=150)])
    assert found.verdict is not None
    assert found.verdict.expected_start == 200


def test_those_whom_it_serves_see_the_cards_as_free(pool: Any) -> None:
    group = reserved(FIRST, SECOND, groups=frozenset({"b"}))
    jobs = [pool.job(1, limit=500), pool.job(2, limit=500, group="b", user="bob")]
    assert started(snapshot(pool, jobs[1:], group), 150) == {2: [FIRST]}
    assert started(snapshot(pool, jobs, group), 150) == {2: [FIRST]}, "none is promised while all are kept"
    user = reserved(FIRST, SECOND, users=frozenset({"bob"}))
    assert started(snapshot(pool, jobs[1:], user), 150) == {2: [FIRST]}


def test_reserved_cards_come_first_for_those_whom_they_serve(pool: Any) -> None:
    mine = reserved(SECOND, groups=frozenset({"b"}))
    works = [
        pool.job(1, group="b", limit=500),
        pool.job(2, group="b", gpu_mib=1024, limit=500),
        pool.session(3, group="b", limit=500),
    ]
    for work in works:
        assert started(snapshot(pool, [work], mine), 150) == {work.id: [SECOND]}
    assert started(snapshot(pool, works[:1], mine), 50) == {1: [FIRST]}
    assert started(snapshot(pool, [works[0], replace(works[0], id=9)], mine), 150) == {
        1: [SECOND],
        9: [FIRST],
    }


def test_nobody_gets_cards_under_maintenance(pool: Any) -> None:
    maintenance = reserved(FIRST, SECOND, because="new cables")
    closed = snapshot(pool, [pool.job(1, limit=10), pool.session(2, limit=10)], maintenance)
    assert not started(closed, 150)
    verdict = plan(closed, 150).verdicts[1]
    assert (verdict.reason, verdict.expected_start) == (Reason.UNAVAILABLE, 200)
    assert explain(verdict, closed).message == (
        "2 of the 2 cards that could run this are not available now (new cables)."
    )


def test_work_that_may_use_some_card_waits_for_that_one(pool: Any) -> None:
    kept = reserved(FIRST, groups=frozenset({"b"}))
    busy = pool.lease(pool.job(9), pool.gpus(2)[1:], 180)
    found = replace(snapshot(pool, [pool.job(1, limit=10)], kept), leases=(busy,))
    assert plan(found, 150).verdicts[1].reason is Reason.RESOURCES
    both = snapshot(pool, [pool.job(1, limit=10)], kept, reserved(SECOND, groups=frozenset({"b"}), id=2))
    verdict = plan(both, 150).verdicts[1]
    assert verdict.reason is Reason.UNAVAILABLE
    assert "(reserved for others)" in explain(verdict, both).message


def test_a_served_job_needs_more_cards_than_are_reserved(pool: Any) -> None:
    mine = reserved(SECOND, groups=frozenset({"b"}))
    assert started(snapshot(pool, [pool.job(1, 2, group="b", limit=500)], mine), 150) == {1: [FIRST, SECOND]}


def test_each_reservation_serves_its_own(pool: Any) -> None:
    mine = reserved(FIRST, groups=frozenset({"a"}))
    yours = reserved(SECOND, groups=frozenset({"b"}), id=2)
    jobs = [pool.job(1, 2, limit=50), pool.job(2, group="b", limit=50)]
    assert started(snapshot(pool, jobs, mine, yours), 150) == {2: [SECOND]}
    both = reserved(SECOND, groups=frozenset({"a"}), id=3)
    assert started(snapshot(pool, jobs[:1], mine, yours, both), 150) == {}, "one of them serves others"


def test_bookings_are_seen_by_those_whom_a_reservation_serves(pool: Any) -> None:
    mine = reserved(FIRST, groups=frozenset({"b"}))
    job = pool.job(1, group="b", limit=100)
    board = Board(snapshot(pool, [job], mine, cards=1), 150)
    placement = board.attempt(job)
    assert isinstance(placement, Placement)
    board.book(job, placement, 160, 260)
    assert board.attempt(job) == (None,)
    assert not board.holds(job, placement, 150)
    found = board.earliest(job)
    assert found is not None
    assert found[0] == 260
    board.book(job, placement, 160, 260, -1)
    assert board.holds(job, placement, 150)


def test_a_lent_card_may_be_reserved(pool: Any) -> None:
    """Jobs of those whom it serves get it by the rules of lending; sessions of others do not."""
    gpus = pool.gpus(1, partition="development")
    mine = reserved(gpus[0].uuid, end=1000, groups=frozenset({"b"}))
    lend = Lend("training", "night")
    development = Partition("development", frozenset({"session"}), lend=lend)
    base = pool.snapshot(
        gpus=gpus,
        groups=[pool.group("a"), pool.group("b")],
        windows={"night": ((300, 400),)},
        reservations=(mine,),
    )
    site = replace(base, partitions={"development": development}, settings=Settings(min_run_time=10))
    theirs, others = pool.job(1, group="b", limit=50), pool.job(2, limit=50)
    session = pool.session(3, limit=50)
    assert started(replace(site, waiting=(theirs, others, session)), 300) == {1: [gpus[0].uuid]}
    assert started(replace(site, waiting=(theirs, others, session)), 200) == {}
