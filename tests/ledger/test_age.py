"""Age grows only under the reasons that are nobody's own doing."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger.age import AGE_BATCH, AGE_GRAIN_S
from jupyter_gpupool.scheduler.model import Reason
from tests.ledger.conftest import start_job

AGEING = {Reason.RECLAIMING, Reason.PRIORITY, Reason.RESOURCES}


def age(ledger, id):
    """Return the age a job has by its record once it stops ageing."""
    assert ledger.jobs[id].waiting_since is None
    return ledger.jobs[id].age_s


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason(ledger, sample, reason):
    job = ledger.add_job(sample.job(), 0)
    ledger.accrue_age({job.id: Reason.BACK_OFF}, 0)
    ledger.accrue_age({job.id: reason}, 10)
    ledger.accrue_age({job.id: Reason.BACK_OFF}, 110)
    assert age(ledger, job.id) == (100 if reason in AGEING else 0)


def test_intervals_add_up_exactly(opened, sample):
    job = opened.ledger.add_job(sample.job(), 0)
    for now, reason in (
        (5, Reason.RESOURCES),  # ageing since it was queued
        (20, Reason.PRIORITY),
        (50, Reason.GROUP_QUOTA),  # 50 s so far
        (80, Reason.USER_LIMIT),
        (100, Reason.RECLAIMING),
        (107, Reason.OUTSIDE_WINDOW),  # 7 s more
    ):
        opened.ledger.accrue_age({job.id: reason}, now)
        opened.reopen()
    assert age(opened.ledger, job.id) == 57


def test_a_long_wait_shows_hourly_to_the_scheduler(opened, sample):
    ledger = opened.ledger
    job = ledger.add_job(sample.job(), 0)
    ledger.accrue_age({job.id: Reason.RESOURCES}, AGE_GRAIN_S - 1)
    assert ledger.waiting()[0].age == 0
    ledger.accrue_age({job.id: Reason.RESOURCES}, AGE_GRAIN_S + 5)
    assert ledger.waiting()[0].age == AGE_GRAIN_S + 5
    assert opened.reopen().waiting()[0].age == AGE_GRAIN_S + 5


def test_a_crowd_is_brought_up_to_date_in_parts_and_loses_nothing(ledger, sample):
    ids = [ledger.add_job(sample.job(), 0).id for _ in range(AGE_BATCH + 5)]
    everyone = dict.fromkeys(ids, Reason.PRIORITY)
    ledger.accrue_age(everyone, AGE_GRAIN_S)
    assert [work.age for work in ledger.waiting()].count(0) == 5
    ledger.accrue_age(everyone, AGE_GRAIN_S + 1)
    assert {work.age for work in ledger.waiting()} == {AGE_GRAIN_S, AGE_GRAIN_S + 1}
    ledger.accrue_age(dict.fromkeys(ids, Reason.GROUP_QUOTA), AGE_GRAIN_S + 2)
    assert {work.age for work in ledger.waiting()} == {AGE_GRAIN_S + 2}


def test_age_rests_while_held_and_while_running_and_is_kept(opened, sample):
    ledger = opened.ledger
    job = ledger.add_job(sample.job(), 0)
    ledger.hold(job.id, "by ada", 10)
    ledger.accrue_age({job.id: Reason.RESOURCES}, 500)  # a verdict from before the hold
    ledger.release(job.id, 1000)
    start_job(ledger, job.id, sample.place("SIM-0"), 1020, mode="whole")
    assert age(ledger, job.id) == 30
    ledger.requeue_job(job.id, 1, "rebooted", 2000)
    ledger.accrue_age({job.id: Reason.BACK_OFF}, 2003)
    assert age(ledger, job.id) == 33


def test_a_job_without_a_verdict_goes_on_as_it_was(ledger, sample):
    job = ledger.add_job(sample.job(), 0)
    ledger.accrue_age({}, 50)
    ledger.accrue_age({99: Reason.BACK_OFF}, 60)
    ledger.accrue_age({job.id: Reason.BACK_OFF}, 70)
    assert age(ledger, job.id) == 70


def test_a_clock_that_goes_back_takes_no_age_away(ledger, sample):
    job = ledger.add_job(sample.job(), 100)
    ledger.accrue_age({job.id: Reason.BACK_OFF}, 40)
    assert age(ledger, job.id) == 0
