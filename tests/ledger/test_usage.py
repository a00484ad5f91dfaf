"""Decayed usage: hand-computed values, and the laws of the formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.ledger import JobState
from jupyter_gpupool.ledger.usage import HALF_LIFE_S, decayed
from tests.ledger.conftest import start_job

GPU = 1_000_000_000  # nano
DAY = 86400
amounts = st.integers(0, 4096 * GPU)
seconds = st.integers(0, 400 * DAY)


@pytest.mark.parametrize(
    ("nano", "held", "dt", "expected"),
    [
        (0, GPU, 7 * DAY, GPU // 2),  # half of what is held, after a half-life
        (GPU, 0, 7 * DAY, GPU // 2),  # half is forgotten
        (GPU, 0, 21 * DAY, GPU // 8),
        (0, GPU, 14 * DAY, 3 * GPU // 4),
        (GPU, 0, DAY, 905_723_664),  # 0.5^(1/7) = 0.905723664263906…
        (0, GPU, DAY, 94_276_336),  # 1 − 0.905723664…
        (2 * GPU, GPU, DAY, 1_905_723_664),
        (0, 4 * GPU, 300, 1_375_056),  # 4·(1 − 2^(−300/604800)) = 4·0.00034376389…
        (GPU, GPU, 5 * DAY, GPU),  # what is held for ever stays
        (3, 0, 7 * DAY, 2),  # 1.5 is rounded up
        (1, 0, 7 * DAY + 1, 0),
        (GPU, 0, 0, GPU),
        (GPU, 0, -5, GPU),  # a clock that went back changes nothing
        (4096 * GPU, 0, 100 * 365 * DAY, 0),
    ],
)
def test_worked_values(nano, held, dt, expected):
    assert decayed(nano, held, dt) == expected


@given(amounts, amounts, seconds, seconds)
def test_two_steps_are_one_within_rounding(nano, held, first, second):
    together = decayed(nano, held, first + second)
    assert abs(decayed(decayed(nano, held, first), held, second) - together) <= 1


@given(amounts, amounts, seconds)
def test_usage_moves_towards_what_is_held_and_never_past_it(nano, held, dt):
    later = decayed(nano, held, dt)
    assert min(nano, held) <= later <= max(nano, held)


@given(amounts, amounts, amounts, seconds)
def test_usages_add_up(nano, held, other, dt):
    apart = decayed(nano, held, dt) + decayed(other, 0, dt)
    assert abs(decayed(nano + other, held, dt) - apart) <= 1


def test_a_lease_counts_from_its_grant_until_it_is_free(opened):
    job, lease = opened.running(now=0)
    assert opened.ledger.usage(0).by_user == {("vision", "ada"): 0}
    assert opened.ledger.usage(HALF_LIFE_S).by_user == {("vision", "ada"): GPU // 2}
    opened.end(job.id, HALF_LIFE_S, free=False)
    assert opened.ledger.usage(2 * HALF_LIFE_S).by_group == {"vision": 3 * GPU // 4}
    opened.ledger.free_lease(lease.id, 2 * HALF_LIFE_S)
    assert opened.ledger.usage(3 * HALF_LIFE_S).by_group == {"vision": 3 * GPU // 8}


def test_usage_is_priced_and_summed_over_a_group(opened, sample):
    ledger = opened.ledger
    for owner, uuid, charge in (("ada", "SIM-0", 2000), ("eve", "SIM-1", 500)):
        job = ledger.add_job(sample.job(owner=owner), 0)
        start_job(ledger, job.id, sample.place(uuid), 0, mode="whole", charge_milli=charge)
    usage = ledger.usage(HALF_LIFE_S)
    assert usage.by_user == {("vision", "ada"): GPU, ("vision", "eve"): GPU // 4}
    assert usage.by_group == {"vision": GPU + GPU // 4}


def test_slices_count_by_their_milli_gpu(opened, sample):
    session = opened.ledger.add_session(sample.session(), 0)
    opened.ledger.session_held(session.id, sample.place("SIM-0", mib=4096, milli=125), 0, mode="timeslice")
    assert opened.ledger.usage(HALF_LIFE_S).by_group == {"speech": GPU // 16}


def test_usage_survives_a_restart_with_and_without_a_lease(opened):
    job, _ = opened.running(now=0)
    expected = opened.ledger.usage(3 * DAY)
    assert opened.reopen().usage(3 * DAY) == expected
    opened.end(job.id, 3 * DAY)
    expected = opened.ledger.usage(9 * DAY)
    assert opened.reopen().usage(9 * DAY) == expected


def test_reading_usage_changes_nothing(opened):
    opened.running(now=0)
    before = opened.ledger.usage(7 * DAY)
    for moment in range(0, 7 * DAY, 3600):
        opened.ledger.usage(moment)
    assert opened.ledger.usage(7 * DAY) == before


def test_a_clock_that_goes_back_counts_no_time_twice(opened, sample):
    job, _ = opened.running(now=0)
    opened.end(job.id, HALF_LIFE_S)
    again = opened.ledger.add_job(sample.job(), 0)
    start_job(opened.ledger, again.id, sample.place("SIM-0"), 0, mode="whole")
    opened.end(again.id, HALF_LIFE_S, JobState.CANCELLED)
    assert opened.ledger.usage(HALF_LIFE_S).by_group == {"vision": GPU // 2}
