"""Who is over quota, who lends to whom until when, and what another policy would do: hand-computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.frame import NO_GRANTS, Boost, Grants, frame_of
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.scheduler.model import (
    GpuShare,
    Lease,
    Placement,
    Promise,
    Request,
    Snapshot,
    Usage,
    Work,
)
from jupyter_gpupool.service.comparing import moved_promises, newly_over
from jupyter_gpupool.service.standing import Loan, loans, over_quota

NOW = 1_800_000_000
HOUR = 3600
POOL = SimulatedPool.parse("1x8x8GiB")
TREE = """
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups:
  lab: {quota: {gpus: 1}}
  vision: {parent: lab, quota: {gpus: 2}}
  sound: {parent: lab, quota: {gpus: 1}}
  speech: {quota: {gpus: 3}}
"""


def lease(id: int, group: str, cards: int = 1, *, start: int = -HOUR, end: int = HOUR, **more: Any) -> Lease:
    shares = tuple(GpuShare(f"SIM-node1-{id - 1 + n}", 8192) for n in range(cards))
    values: dict[str, Any] = {
        "id": id,
        "work": 100 + id,
        "kind": "job",
        "user": "ada",
        "group": group,
        "priority": "normal",
        "request": Request(gpus=cards),
        "placement": Placement(("node1",), shares, 1000 * cards, "all"),
        "start": NOW + start,
        "end": NOW + end,
        "whole": True,
    }
    return Lease(**values | more)


def snapshot(*leases: Lease, policy: str = TREE, grants: Grants = NO_GRANTS, **more: Any) -> Snapshot:
    frame = frame_of(load_policy(policy), POOL, {}, NOW, None, "here", grants)
    made = frame.snapshot(waiting=(), leases=leases, promises=(), usage=Usage())
    return replace(made, **more)


def test_who_uses_more_than_is_owned_is_over_and_so_are_those_above() -> None:
    assert over_quota(snapshot(lease(1, "vision", 2)), NOW) == set()
    assert over_quota(snapshot(lease(1, "vision", 3)), NOW) == {"vision"}
    assert over_quota(snapshot(lease(1, "vision", 5)), NOW) == {"vision", "lab"}


def test_a_boost_ends_it() -> None:
    boost = Boost("vision", {"gpu_milli": 1000}, NOW, NOW + HOUR)
    assert over_quota(snapshot(lease(1, "vision", 3), grants=Grants((boost,))), NOW) == set()


def test_nobody_lends_who_is_not_asked() -> None:
    assert loans(snapshot(lease(1, "vision", 2), lease(2, "speech", 3)), NOW) == []


def test_the_group_above_lends_first_then_those_beside_then_the_pool_then_the_others() -> None:
    """Eight cards: lab 1, vision 2, sound 1, speech 3, and one that nobody is owed."""
    found = loans(snapshot(lease(1, "vision", 7)), NOW)
    assert [(loan.lender, loan.gpu_milli) for loan in found] == [
        ("lab", 1000),
        ("sound", 1000),
        ("pool", 1000),
        ("speech", 2000),
    ]
    assert {loan.borrower for loan in found} == {"vision"}


def test_a_loan_ends_when_the_work_above_the_quota_does() -> None:
    """The most recently started jobs are those above the quota; sessions never are."""
    inside = lease(1, "vision", end=9 * HOUR, start=-5 * HOUR)
    session = lease(2, "vision", end=8 * HOUR, start=0, kind="session")
    above = lease(3, "vision", end=2 * HOUR, start=-HOUR, resumable=True)
    assert loans(snapshot(inside, session, above), NOW) == [
        Loan("lab", "vision", 1000, NOW + 2 * HOUR, on_demand=True)
    ]
    fixed = replace(above, resumable=False)
    assert not loans(snapshot(inside, session, fixed), NOW)[0].on_demand


def test_who_was_asked_to_stop_brings_the_card_back_within_the_grace() -> None:
    asked = lease(3, "sound", 2, resumable=True, grace=60, asked=NOW - 10)
    assert loans(snapshot(asked), NOW)[0].until == NOW + 50


def test_what_one_has_lent_another_does_not_get_again() -> None:
    found = loans(snapshot(lease(1, "vision", 4), lease(2, "sound", 2)), NOW)
    lent = [(loan.lender, loan.borrower, loan.gpu_milli) for loan in found]
    assert lent == [("lab", "vision", 1000), ("pool", "vision", 1000), ("speech", "sound", 1000)]


def test_work_of_a_group_that_is_gone_is_nobodys_loan() -> None:
    assert loans(snapshot(lease(1, "gone", 2)), NOW) == []


# -- another policy --------------------------------------------------------------------------------


VISION = "  vision: {parent: lab, quota: {gpus: 2}}\n"


@pytest.mark.parametrize(
    ("was", "new", "expected"),
    [
        (VISION, VISION.replace("2", "1"), ["vision uses 2 cards and would be owed 1 card."]),
        (VISION, "", ["vision uses 2 cards and would be owed 0 cards."]),
        ("speech: {quota: {gpus: 3}}", "speech: {quota: {gpus: 2}}", []),  # it is over already
        (
            "sound: {parent: lab, quota: {gpus: 1}}",
            "sound: {parent: lab, quota: {gpus: 1, cpus: 1}}",
            ["sound uses 6 CPU cores and would be owed 1 CPU core."],
        ),
    ],
)
def test_a_policy_says_who_becomes_over_quota(was: str, new: str, expected: list[str]) -> None:
    sound = lease(3, "sound", request=Request(gpus=1, cpus_milli=6000))
    leases = (lease(1, "vision", 2), lease(2, "speech", 4), sound)
    assert was in TREE
    after = snapshot(*leases, policy=TREE.replace(was, new))
    assert newly_over(snapshot(*leases), after, NOW) == expected


def waiting(id: int, group: str, cards: int) -> Work:
    return Work(id, "job", "ada", group, "normal", NOW - id, HOUR, Request(gpus=cards), resumable=True)


def test_a_policy_says_which_promises_move_and_which_end() -> None:
    """Job 9 waits for the eight cards; a policy under which vision may not reach eight ends its promise."""
    leases = (lease(1, "speech", 1, end=2 * HOUR), lease(2, "speech", 1, end=4 * HOUR))
    kept = {"waiting": (waiting(9, "vision", 8),)}
    old = snapshot(*leases, **kept)
    assert moved_promises(old, old, NOW) == []
    limited = TREE.replace(VISION, VISION.replace("gpus: 2}", "gpus: 2}, limit: {gpus: 6}"))
    (ends,) = moved_promises(old, snapshot(*leases, policy=limited, **kept), NOW)
    assert ends == "The promise to 9 in vision, 12:00 UTC, ends: it would wait under ExceedsLimit."


def test_a_promise_that_starts_at_once_has_not_moved() -> None:
    held = lease(1, "speech", 1, end=2 * HOUR)
    promise = Promise(9, NOW + 2 * HOUR, Placement(("node1",), (), 8000, "all"), NOW)
    kept = {"waiting": (waiting(9, "vision", 8),), "promises": (promise,)}
    old = snapshot(held, **kept)
    assert moved_promises(old, snapshot(**kept), NOW) == []
