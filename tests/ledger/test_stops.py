"""What stops for others leave behind: one commit each, nothing lost, nothing counted twice."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger import IllegalTransition, JobState, LeaseState
from jupyter_gpupool.ledger.stops import Mark, StopOrder
from jupyter_gpupool.scheduler.back_off import back_off, stops_in_vain
from jupyter_gpupool.scheduler.model import Stop

LEAST = 600
NOTHING = Mark()


def order(lease, cause="reclaim", taker=9):
    return StopOrder(Stop(lease.work, lease.id, cause, taker), "Stopped for job 9.")


def stopped(opened, now, mark, *, ran=LEAST, uuid="SIM-0", **changes):
    """Run the first job for `ran` seconds and stop it; return it as it is then."""
    ledger = opened.ledger
    if not ledger.jobs:
        opened.running(now=now, uuid=uuid, **changes)
    else:
        opened.again(1, now)
    job = ledger.jobs[1]
    ledger.stops.ask([order(ledger.leases[job.lease])], now + ran)
    return ledger.stops.left(1, job.attempt, mark, LEAST, now + ran + 5, free=True)


@pytest.mark.parametrize(
    ("stops", "seconds"), [(1, 60), (2, 120), (3, 240), (4, 480), (5, 960), (6, 1800), (99, 1800)]
)
def test_rest_doubles_up_to_half_an_hour(stops, seconds):
    assert back_off(stops) == seconds


@pytest.mark.parametrize(
    ("before", "ran", "progress", "count"),
    [(0, 600, False, 1), (1, 600, False, 2), (1, 599, False, 1), (1, 599, True, 0), (1, 600, True, 0)],
)
def test_only_a_run_of_the_least_length_counts_against_the_job(before, ran, progress, count):
    assert stops_in_vain(before, ran, 600, progress=progress) == count


def test_who_is_asked_is_stopping_and_its_lease_says_for_whom(opened):
    job, lease = opened.running(now=100)
    (asked,) = opened.ledger.stops.ask([order(lease)], 400)
    found = opened.ledger.jobs[job.id]
    assert (found.state, found.reason) == (JobState.STOPPING, "Stopped for job 9.")
    assert (asked.state, asked.asked, asked.cause, asked.taker) == (LeaseState.HELD, 400, "reclaim", 9)
    assert asked.latest == 400 + 120
    (view,) = opened.ledger.held()
    assert (view.asked, view.grace) == (400, 120)
    before = opened.ledger.leases[lease.id]
    opened.reopen()
    assert opened.ledger.leases[lease.id] == before
    assert opened.ledger.stops.of(job.id) == [before]


def test_nobody_is_asked_twice_nor_who_does_not_run(opened):
    job, lease = opened.running(now=100)
    ledger = opened.ledger
    assert ledger.stops.possible(order(lease).stop)
    assert not ledger.stops.possible(Stop(job.id, 99, "reclaim", 9))
    assert not ledger.stops.possible(Stop(99, lease.id, "reclaim", 9))
    ledger.stops.ask([order(lease)], 400)
    assert not ledger.stops.possible(order(lease).stop)
    with pytest.raises(IllegalTransition, match="job 1 cannot be asked to leave lease 1 now"):
        ledger.stops.ask([order(lease)], 401)
    opened.end(job.id, 402)
    assert not ledger.stops.possible(order(lease).stop)


def test_who_was_cancelled_is_leaving_already(opened):
    job, lease = opened.running(now=100)
    opened.ledger.job_stopping(job.id, 1, "Cancelled by ada.", 300)
    assert not opened.ledger.stops.possible(order(lease).stop)
    (view,) = opened.ledger.held()
    assert view.asked == 300
    assert opened.ledger.stops.of(job.id) == []


def test_all_are_asked_in_one_commit_or_none(opened):
    _, one = opened.running(now=100)
    _, two = opened.running(now=100, uuid="SIM-1")
    opened.ledger.stops.ask([order(two)], 300)
    with pytest.raises(IllegalTransition):
        opened.ledger.stops.ask([order(one), order(two)], 400)
    assert opened.ledger.leases[one.id].asked is None


def test_a_stopped_job_keeps_its_submit_time_and_rests(opened):
    job = stopped(opened, 100, Mark(saved_ms=650_000))
    assert (job.state, job.submitted, job.attempt) == (JobState.QUEUED, 100, 1)
    assert (job.stops, job.in_vain, job.saved_ms) == (1, 0, 650_000)
    assert job.not_before == 705 + 60
    assert opened.ledger.leases[1].state is LeaseState.FREE
    job = stopped(opened, 1000, Mark(saved_ms=1_500_000))
    assert (job.stops, job.not_before) == (2, 1605 + 120)
    assert [lease.attempt for lease in opened.ledger.stops.of(1)] == [1, 2]
    assert [note.text for note in opened.ledger.notes(1)] == ["Stopped for job 9."] * 2


def test_two_stops_that_bring_nothing_further_hold_it(opened):
    assert stopped(opened, 100, NOTHING).state is JobState.QUEUED
    job = stopped(opened, 1000, NOTHING)
    assert job.state is JobState.HELD
    assert job.held.startswith("it was stopped for others 2 times without getting further: no newer file")
    assert opened.ledger.notes(1)[-1].text == f"Held: {job.held}."
    opened.reopen()
    assert opened.ledger.jobs[1] == job
    opened.ledger.release(1, 2000)
    assert stopped(opened, 3000, NOTHING).state is JobState.QUEUED  # it may try twice again


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Mark(saved_ms=5), Mark(saved_ms=6)),
        (Mark(progress_ppm=5), Mark(progress_ppm=6)),
        (Mark(saved_ms=5, progress_ppm=5), Mark(saved_ms=5, progress_ppm=6)),
    ],
)
def test_either_a_newer_checkpoint_or_a_higher_fraction_is_progress(opened, first, second):
    stopped(opened, 100, first)
    stopped(opened, 1000, first)
    assert (opened.ledger.jobs[1].state, opened.ledger.jobs[1].in_vain) == (JobState.QUEUED, 1)
    job = stopped(opened, 2000, second)
    assert (job.state, job.in_vain) == (JobState.QUEUED, 0)


def test_who_begins_anew_each_time_makes_no_progress(opened):
    stopped(opened, 100, Mark(progress_ppm=500_000))
    stopped(opened, 1000, Mark(progress_ppm=400_000))
    assert stopped(opened, 2000, Mark(progress_ppm=500_000)).state is JobState.HELD


def test_short_runs_and_those_nobody_can_judge_do_not_hold_it(opened):
    for turn in range(4):
        job = stopped(opened, 1000 * turn, NOTHING, ran=LEAST - 1)
    for turn in range(4, 8):
        job = stopped(opened, 1000 * turn, None)
    assert (job.state, job.stops) == (JobState.QUEUED, 8)


def test_only_who_was_asked_leaves_for_others_and_once(opened):
    _, lease = opened.running(now=100)
    with pytest.raises(IllegalTransition, match="job 1 was not asked to leave attempt 1 for others"):
        opened.ledger.stops.left(1, 1, NOTHING, LEAST, 200, free=True)
    opened.ledger.stops.ask([order(lease)], 200)
    opened.ledger.stops.left(1, 1, NOTHING, LEAST, 210, free=True)
    with pytest.raises(IllegalTransition):
        opened.ledger.stops.left(1, 1, NOTHING, LEAST, 211, free=True)
    assert opened.ledger.jobs[1].stops == 1


def test_a_lease_whose_memory_is_not_free_yet_is_releasing(opened):
    _, lease = opened.running(now=100)
    opened.ledger.stops.ask([order(lease)], 200)
    opened.ledger.stops.left(1, 1, NOTHING, LEAST, 210, free=False)
    assert opened.ledger.leases[lease.id].state is LeaseState.RELEASING


def test_a_job_with_a_checkpoint_can_resume(opened):
    job, lease = opened.running(now=100, resumable=False)
    opened.ledger.stops.can_resume(job.id, 200)
    (view,) = opened.ledger.held()
    assert (opened.ledger.jobs[job.id].resumable, view.resumable) == (True, True)
    opened.reopen()
    assert (opened.ledger.jobs[job.id].resumable, opened.ledger.leases[lease.id].resumable) == (True, True)


def test_what_is_pruned_is_forgotten(opened):
    _, lease = opened.running(now=100)
    opened.ledger.stops.ask([order(lease)], 200)
    opened.end(1, 210)
    opened.ledger.prune(10_000, 100)
    assert opened.ledger.stops.of(1) == []
