"""Who comes after whom: what still has to happen, and what never will."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger import JobState


def after(ledger, id):
    return next(work.after for work in ledger.waiting() if work.id == id)


def test_a_job_waits_until_the_other_has_completed(opened, sample):
    ledger = opened.ledger
    first, _ = opened.running()
    second = ledger.add_job(sample.job(after=(first.id,)), 100)
    assert after(ledger, second.id) == (first.id,)
    opened.end(first.id, 200)
    assert after(ledger, second.id) == ()
    assert ledger.dependencies.doomed == set()


@pytest.mark.parametrize("outcome", [JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED])
def test_after_another_end_it_never_starts(opened, sample, outcome):
    ledger = opened.ledger
    first, _ = opened.running()
    second = ledger.add_job(sample.job(after=(first.id,)), 100)
    any_end = ledger.add_job(sample.job(after_any=(first.id,)), 100)
    opened.end(first.id, 200, outcome)
    assert after(ledger, second.id) == (first.id,)
    assert after(ledger, any_end.id) == ()
    assert ledger.dependencies.doomed == {second.id}
    assert ledger.dependencies.broken(second) == first.id


def test_it_waits_for_each_of_several_once(opened, sample):
    ledger = opened.ledger
    first, second = ledger.add_job(sample.job(), 1), ledger.add_job(sample.job(), 1)
    job = ledger.add_job(sample.job(after=(first.id, second.id), after_any=(second.id,)), 2)
    assert after(ledger, job.id) == (first.id, second.id)
    opened.again(first.id, 3)
    opened.end(first.id, 4)
    assert after(ledger, job.id) == (second.id,)


def test_a_job_that_runs_again_keeps_others_waiting(opened, sample):
    ledger = opened.ledger
    first, _ = opened.running()
    second = ledger.add_job(sample.job(after=(first.id,)), 100)
    ledger.requeue_job(first.id, 1, "it failed", 200, failed=True)
    assert ledger.jobs[first.id].failures == 1
    assert after(ledger, second.id) == (first.id,)
    assert ledger.dependencies.doomed == set()


def test_an_array_has_completed_with_its_last_task(opened, sample):
    ledger = opened.ledger
    array = ledger.add_array(sample.job(), (0, 1), None, 100)
    job = ledger.add_job(sample.job(after=(array.id,)), 100)
    one, two = ledger.arrays.jobs(array.id)
    opened.again(one.id, 110)
    opened.end(one.id, 120)
    assert after(ledger, job.id) == (array.id,)
    opened.again(two.id, 130)
    opened.end(two.id, 140)
    assert after(ledger, job.id) == ()


def test_an_array_will_not_complete_once_a_task_has_failed(opened, sample):
    ledger = opened.ledger
    array = ledger.add_array(sample.job(), (0, 1), None, 100)
    job = ledger.add_job(sample.job(after=(array.id,)), 100)
    any_end = ledger.add_job(sample.job(after_any=(array.id,)), 100)
    one, two = ledger.arrays.jobs(array.id)
    opened.again(one.id, 110)
    opened.end(one.id, 120, JobState.FAILED)
    assert ledger.dependencies.doomed == {job.id}
    assert after(ledger, any_end.id) == (array.id,)
    opened.again(two.id, 130)
    opened.end(two.id, 140)
    assert after(ledger, any_end.id) == ()


def test_a_cancelled_array_whose_rest_is_no_job_yet_counts_as_ended(ledger, sample):
    array = ledger.add_array(sample.job(), tuple(range(100)), None, 100)
    job = ledger.add_job(sample.job(after_any=(array.id,)), 100)
    ledger.arrays.cancel(array.id, "by ada", 110)
    assert after(ledger, job.id) == ()


def test_it_is_known_again_after_a_restart(opened, sample):
    ledger = opened.ledger
    first, _ = opened.running()
    second = ledger.add_job(sample.job(after=(first.id,)), 100)
    opened.end(first.id, 200, JobState.FAILED)
    again = opened.reopen()
    assert again.jobs[second.id].after == (first.id,)
    assert after(again, second.id) == (first.id,)
    assert again.dependencies.doomed == {second.id}


def test_what_has_been_dropped_since_had_completed(opened, sample):
    ledger = opened.ledger
    first, _ = opened.running()
    second = ledger.add_job(sample.job(after=(first.id,), held="by ada"), 100)
    opened.end(first.id, 200)
    assert ledger.prune(10_000, 100) == [first.id]
    ledger.release(second.id, 10_001)
    assert after(ledger, second.id) == ()
    assert after(opened.reopen(), second.id) == ()


def test_what_waits_for_nothing_new_is_not_shown_anew(opened, sample):
    ledger = opened.ledger
    array = ledger.add_array(sample.job(), (0, 1), None, 100)
    job = ledger.add_job(sample.job(after=(array.id,)), 100)
    before = next(work for work in ledger.waiting() if work.id == job.id)
    opened.again(array.first, 110)
    assert next(work for work in ledger.waiting() if work.id == job.id) is before
