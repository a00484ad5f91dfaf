"""Use by day: what is added up, cut at local midnights, and kept when the records are gone."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.ledger import JobState
from jupyter_gpupool.ledger.use import CardUse, DayUse, Use, days_between, midnight, rounded, use_of_days
from tests.ledger.conftest import start_job

UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
DAY = 86400
ADA = ("vision", "ada", "job")
BOB = ("speech", "bob", "session")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def days(ledger, now, since=0, until=100 * DAY, zone=UTC):
    return ledger.days.between(zone, since, until, now)()


def test_a_day_of_the_clock_change_has_its_own_length():
    edges = days_between(BERLIN, at("2026-10-24T00:00+02:00"), at("2026-10-26T12:00+01:00"))
    assert [b - a for a, b in pairwise(edges)] == [DAY, 25 * 3600, DAY]
    spring = midnight(BERLIN, at("2027-03-28T12:00+02:00"))
    assert days_between(BERLIN, spring, spring + 1)[1] - spring == 23 * 3600


@pytest.mark.parametrize(("wait", "kept"), [(0, 0), (59, 59), (99, 99), (104, 100), (105, 110), (7249, 7200)])
def test_a_wait_is_remembered_to_two_figures(wait, kept):
    assert rounded(wait) == kept


def test_values_of_several_days_add_up():
    one = Use(submitted=2, wait_s=10, waits={5: 2})
    other = Use(submitted=1, wait_s=9, waits={5: 1, 4: 1})
    assert one + other == Use(submitted=3, wait_s=19, waits={5: 3, 4: 1})


def test_what_is_held_is_cut_at_midnight_and_weighed_by_its_price(opened, sample):
    ledger = opened.ledger
    job = ledger.add_job(sample.job(), DAY - 700)
    start_job(ledger, job.id, sample.place("SIM-0"), DAY - 100, mode="whole", charge_milli=2000)
    ledger.job_running(job.id, 1, DAY - 90)
    opened.end(job.id, DAY + 50)
    first, second = days(ledger, DAY + 60)
    assert first.uses[ADA] == Use(100_000, 200_000, submitted=1, started=1, wait_s=600, waits={600: 1})
    assert second.uses[ADA] == Use(50_000, 100_000, completed=1)
    assert [day.cards["SIM-0"] for day in (first, second)] == [
        CardUse(100, 100 * 32768),
        CardUse(50, 50 * 32768),
    ]


def session_between(ledger, sample, start, end):
    """Hold an eighth of a card's memory for a while."""
    session = ledger.add_session(sample.session(), start)
    ledger.session_held(session.id, sample.place("SIM-1", mib=4096, milli=125), start, mode="timeslice")
    return lambda: ledger.end_session(session.id, "done", end)


def test_a_card_that_is_shared_is_touched_once_and_held_by_each(opened, sample):
    ends = [session_between(opened.ledger, sample, *span) for span in ((100, 300), (200, 400), (500, 600))]
    for end in ends:
        end()
    (day,) = days(opened.ledger, 700)
    assert day.cards["SIM-1"] == CardUse(300 + 100, 500 * 4096)
    assert day.uses[BOB] == Use(62_500, 62_500, submitted=3, started=3, waits={0: 3})


def test_what_is_still_held_counts_until_now(opened, sample):
    session_between(opened.ledger, sample, 100, 0)
    assert days(opened.ledger, 300)[0].cards["SIM-1"].touched_s == 200
    assert days(opened.ledger, 340)[0].cards["SIM-1"].touched_s == 240


def test_jobs_are_counted_by_outcome_and_requeues_wait_once(opened, sample):
    ledger = opened.ledger
    first, _ = opened.running(now=100)
    ledger.requeue_job(first.id, 1, "rebooted", 160)
    start_job(ledger, first.id, sample.place("SIM-0"), 400, mode="whole")
    opened.end(first.id, 450, JobState.FAILED, exit_code=1)
    ledger.cancel_queued(ledger.add_job(sample.job(), 500).id, "by ada", 501)
    (day,) = days(ledger, 600)
    assert day.uses[ADA] == Use(110_000, 110_000, submitted=2, started=1, failed=1, cancelled=1, waits={0: 1})


def test_a_stop_for_others_is_counted_when_it_was_asked_for(opened):
    job, lease = opened.running(now=100)
    asked = vars_of(lease) | {"asked": DAY + 5, "cause": "reclaim"}
    first, second = use_of_days([job], [], [type(lease)(**asked)], [0, DAY, 2 * DAY], DAY + 10)
    assert (first.uses[ADA].stopped, second.uses[ADA].stopped) == (0, 1)


def vars_of(record):
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_a_day_that_is_over_outlives_its_records(opened, sample):
    ledger = opened.ledger
    job, _ = opened.running(now=DAY - 600, priority="high")
    opened.end(job.id, DAY + 600)
    before = days(ledger, 3 * DAY - 1)
    assert [day.start for day in before] == [0, DAY, 2 * DAY]
    assert ledger.days.closed() is None
    assert ledger.days.close(UTC, 2 * DAY + 3599) == DAY
    assert ledger.days.close(UTC, 2 * DAY + 3600) == 2 * DAY
    assert ledger.prune(3 * DAY, DAY) == [job.id]
    assert days(ledger, 3 * DAY - 1) == before
    assert days(opened.reopen(), 3 * DAY - 1) == before
    assert days(opened.ledger, 3 * DAY - 1, since=DAY, until=2 * DAY) == before[1:2]
    assert opened.ledger.days.close(UTC, 2 * DAY + 4000) == 2 * DAY


def test_what_was_measured_is_added_to_its_day_before_and_after_it_is_closed(opened, sample):
    ledger = opened.ledger
    job, _ = opened.running(now=100)
    opened.end(job.id, 700)
    for used in (10, 20):
        ledger.days.measured(
            UTC,
            800,
            {ADA: Use(known_milli_s=60, used_milli_s=used, idle_s=5)},
            {"SIM-0": CardUse(0, 0, 60, used)},
        )
    for _ in range(2):
        (day,) = days(ledger, 900, until=DAY)
        use = day.uses[ADA]
        assert (use.known_milli_s, use.used_milli_s, use.idle_s) == (120, 30, 10)
        assert (use.gpu_milli_s, use.waits) == (600_000, {0: 1})
        assert day.cards["SIM-0"] == CardUse(600, 600 * 32768, 120, 30)
        ledger.days.close(UTC, 2 * DAY)


def test_in_another_time_zone_the_days_go_on_where_the_last_one_ended(opened):
    opened.running(now=100)
    opened.ledger.days.close(UTC, 2 * DAY + 3600)
    later = days(opened.ledger, 2 * DAY + 3600, zone=BERLIN)
    assert [(day.start, day.end) for day in later] == [
        (0, DAY),
        (DAY, 2 * DAY),
        (2 * DAY, 3 * DAY - 3600),
    ]


def test_a_ledger_without_work_has_a_day_without_use(opened):
    assert days(opened.ledger, DAY + 5) == [DayUse(DAY, 2 * DAY)]
    assert opened.ledger.days.close(UTC, 5 * DAY + 5) == 5 * DAY
