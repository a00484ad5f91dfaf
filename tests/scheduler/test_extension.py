"""What runs gets more time only where nobody was promised, owed or lent what it would keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpupool.scheduler.extension import obstacle
from jupyter_gpupool.scheduler.model import (
    Budget,
    Lend,
    Partition,
    Promise,
    Reservation,
    Settings,
    UserLimits,
)
from jupyter_gpupool.scheduler.plan import plan


@pytest.fixture
def running(pool: Any) -> Any:
    """Two cards; job 1 runs on the first until 100, job 2 on the second until 200."""
    cards = pool.gpus(2)

    def build(waiting: Any = (), **more: Any) -> Any:
        changes = more.pop("job", {})
        leases = [
            pool.lease(pool.job(1, limit=100, **changes), cards[:1], 100),
            pool.lease(pool.job(2, limit=200, group="b"), cards[1:], 200),
        ]
        groups = more.pop("groups", [pool.group("a"), pool.group("b")])
        found = pool.snapshot(waiting, leases, gpus=cards, groups=groups, **more)
        return replace(found, promises=plan(found, 50).promises)

    return build


def asked(snapshot: Any, end: int, now: int = 50) -> str | None:
    return obstacle(snapshot, now, snapshot.leases[0], end)


def test_nobody_waits(running: Any) -> None:
    assert asked(running(), 100_000) is None


def test_a_promise_would_move(running: Any, pool: Any) -> None:
    both = running([pool.job(3, gpus=2)])
    assert [promise.start for promise in both.promises] == [200]
    assert asked(both, 200) is None
    assert asked(both, 201) == "job 3 is promised to start at 00:03 UTC."


def test_an_estimate_may_move(running: Any, pool: Any) -> None:
    estimated = running([pool.job(3)], settings=Settings(promises=0))
    assert estimated.promises == ()
    assert asked(estimated, 100_000) is None


def test_its_cards_are_reserved_for_others(running: Any) -> None:
    theirs = Reservation(1, frozenset({"training-1-0"}), 300, 400, groups=frozenset({"b"}))
    mine = replace(theirs, groups=frozenset({"a"}))
    assert asked(running(reservations=(theirs,)), 300) is None
    assert asked(running(reservations=(theirs,)), 301) == "its cards are reserved from 00:05 UTC."
    assert asked(running(reservations=(mine,)), 350) is None


def test_lent_cards_are_handed_back(running: Any) -> None:
    lending = {"training": Partition("training", frozenset({"session"}), lend=Lend("x", "night"))}
    night = {"night": ((0, 600),)}
    lent = replace(running(), partitions=lending, windows=night)
    assert asked(lent, 600) is None
    assert asked(lent, 601) == "its lent cards are handed back at 00:10 UTC."
    resumable = replace(lent, leases=tuple(replace(lease, resumable=True) for lease in lent.leases))
    assert asked(resumable, 601) is None


def test_what_cannot_be_stopped_does_not_borrow_for_longer_than_that(running: Any, pool: Any) -> None:
    borrowed = running(
        groups=[pool.group("a", cards=0), pool.group("b")], settings=Settings(borrow_max_time=150)
    )
    assert asked(borrowed, 200) is None
    assert asked(borrowed, 201) == "the quota of a has no room for that."


def test_a_budget_pays_for_it(running: Any) -> None:
    def left(milli_gpu_seconds: int) -> Any:
        return running(budgets={"a": Budget(milli_gpu_seconds, 0, (10_000,))})

    assert asked(left(100_000), 150) is None
    assert asked(left(99_999), 150) == "the budget of a has no room for that."


def test_a_limit_that_was_lowered_since_is_named(running: Any, pool: Any) -> None:
    lowered = running(groups=[pool.group("a", user=UserLimits(running_jobs=0)), pool.group("b")])
    assert asked(lowered, 101) == "the limit of ann in a has no room for that."


def test_a_start_that_is_due_now_is_a_promise_kept(running: Any, pool: Any) -> None:
    due = running([pool.job(3)])
    free = replace(due, leases=due.leases[:1], promises=(Promise(3, 50, due.promises[0].placement, 0),))
    assert asked(free, 1000) is None
