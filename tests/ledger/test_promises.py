"""Promises are stored, end with the waiting, and every move is logged with its cause."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger.records import Move
from jupyter_gpupool.scheduler.model import Promise, PromiseMove
from tests.ledger.conftest import start_job


@pytest.fixture
def promised(opened, sample):
    """Two jobs with a promise each."""
    placement = sample.place("SIM-0")
    promises = [Promise(opened.ledger.add_job(sample.job(), 0).id, start, placement, 1) for start in (60, 90)]
    opened.ledger.set_promises(promises, [], 1)
    return promises


def test_promises_are_stored_and_replaced(opened, promised, sample):
    assert opened.reopen().promises == {promise.work: promise for promise in promised}
    later = Promise(2, 120, sample.place("SIM-1"), 1)
    move = PromiseMove(2, 90, 120, "SIM-0 was drained")
    opened.ledger.set_promises([later], [move], 30)
    assert opened.reopen().promises == {2: later}
    assert opened.ledger.moves(2) == [Move(30, 2, 90, 120, "SIM-0 was drained")]
    assert opened.ledger.moves(1) == []


def test_nothing_is_written_when_nothing_changed(ledger, promised, commits):
    commits.clear()
    ledger.set_promises(promised, [], 2)
    assert not commits


@pytest.mark.parametrize("leave", ["start", "hold", "cancel"])
def test_a_promise_ends_when_its_job_leaves_the_queue(opened, promised, sample, leave):
    ledger = opened.ledger
    if leave == "start":
        start_job(ledger, 1, sample.place("SIM-0"), 60, mode="whole")
    elif leave == "hold":
        ledger.hold(1, "by ada", 60)
    else:
        ledger.cancel_queued(1, "by ada", 60)
    assert list(ledger.promises) == [2]
    assert list(opened.reopen().promises) == [2]


def test_a_promise_to_a_session_ends_when_it_is_granted(ledger, sample):
    session = ledger.add_session(sample.session(), 0)
    place = sample.place("SIM-0", mib=4096, milli=125)
    ledger.set_promises([Promise(session.id, 60, place, 1)], [], 1)
    assert list(ledger.promises) == [session.id]
    ledger.session_held(session.id, place, 2, mode="timeslice")
    assert not ledger.promises


def test_a_promise_that_comes_too_late_is_left_out(ledger, promised):
    ledger.cancel_queued(1, "by ada", 2)
    ledger.set_promises(promised, [], 3)
    assert list(ledger.promises) == [2]
