"""An array is one row and a few jobs; its other tasks follow, lose nothing and come once."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger import IllegalTransition, JobState, UnknownId
from jupyter_gpupool.ledger.arrays import FRESH

TASKS = tuple(range(100))


def add(ledger, sample, tasks=TASKS, limit=8, now=100, **changes):
    return ledger.add_array(sample.job(**changes), tasks, limit, now)


def cancel_all(ledger, array, now):
    ledger.cancel_all_queued([job.id for job in ledger.arrays.jobs(array.id) if job.state.waiting], "", now)


def test_at_first_a_few_tasks_are_jobs_and_one_row_stands_for_the_rest(ledger, sample, commits):
    before = len(commits)
    array = add(ledger, sample)
    assert len(commits) == before + 1
    jobs = ledger.arrays.jobs(array.id)
    assert [job.index for job in jobs] == list(range(FRESH))
    assert {job.array for job in jobs} == {array.id}
    assert ledger.jobs.keys() == {array.id + 1 + i for i in range(FRESH)}
    assert ledger.arrays.records[array.id].rest == TASKS[FRESH:]
    assert ledger.arrays.counts(array.id) == {JobState.QUEUED: 100}
    assert ledger.arrays.state(array.id) is JobState.QUEUED


def test_the_scheduler_sees_the_array_of_each_task(opened, sample):
    ledger = opened.ledger
    array = add(ledger, sample)
    work = ledger.waiting()[0]
    assert (work.array, work.array_limit, work.submitted) == (array.id, 8, 100)
    job = ledger.arrays.jobs(array.id)[0]
    opened.again(job.id, 110)
    lease = ledger.held()[0]
    assert (lease.work, lease.array, lease.array_limit) == (job.id, array.id, 8)


def test_numbers_come_from_one_sequence(ledger, sample):
    first = ledger.add_job(sample.job(), 1)
    array = add(ledger, sample, tasks=(4, 9))
    session = ledger.add_session(sample.session(), 2)
    assert (first.id, array.id, session.id) == (1, 2, 5)
    assert [job.id for job in ledger.arrays.jobs(array.id)] == [3, 4]


def test_tasks_follow_with_the_submit_time_and_the_limit_of_the_array(opened, sample):
    ledger = opened.ledger
    array = add(ledger, sample)
    assert ledger.arrays.short() == []
    for job in ledger.arrays.jobs(array.id)[: FRESH // 2]:
        ledger.cancel_queued(job.id, "", 120)
    ledger.extend_job(array.first + 20, 600, 130)
    assert ledger.arrays.short() == [array.id]
    born = ledger.arrays.expand(array.id, 200)
    assert [job.index for job in born] == list(range(FRESH, FRESH + FRESH // 2))
    assert {(job.submitted, job.limit_s, job.waiting_since) for job in born} == {(100, 3600, 200)}
    assert ledger.arrays.short() == []
    assert sum(ledger.arrays.counts(array.id).values()) == 100


def test_a_task_that_was_stopped_does_not_count_as_one_that_never_ran(opened, sample):
    ledger = opened.ledger
    array = add(ledger, sample)
    job = ledger.arrays.jobs(array.id)[0]
    opened.again(job.id, 110)
    ledger.requeue_job(job.id, 1, "stopped", 120)
    assert [job.index for job in ledger.arrays.expand(array.id, 130)] == [FRESH]


def test_all_of_it_is_there_after_a_restart(opened, sample):
    array = add(opened.ledger, sample, key="k")
    opened.ledger.arrays.task(array.id, 77, 110)
    opened.ledger.cancel_queued(array.first, "", 120)
    before = opened.ledger
    after = opened.reopen()
    assert after.arrays.records == before.arrays.records
    assert after.arrays.counts(array.id) == before.arrays.counts(array.id)
    assert after.arrays.tasks(array.id) == before.arrays.tasks(array.id)
    assert after.waiting() == before.waiting()
    assert after.submitted_as("ada", "k") == after.arrays.records[array.id]
    assert after.add_job(sample.job(), 130).id == max(before.jobs) + 1


def test_the_same_key_gives_the_same_array(ledger, sample):
    array = add(ledger, sample, key="k")
    assert add(ledger, sample, key="k", now=200) is array
    assert add(ledger, sample, key="k", owner="bob") is not array


def test_a_single_task_becomes_a_job_when_somebody_asks_for_it(ledger, sample):
    array = add(ledger, sample)
    job = ledger.arrays.task(array.id, 77, 110)
    assert (job.index, job.array, job.submitted) == (77, array.id, 100)
    assert ledger.arrays.task(array.id, 77, 120) is job
    assert 77 not in ledger.arrays.records[array.id].rest
    with pytest.raises(UnknownId, match=rf"Array {array.id} has no task 100"):
        ledger.arrays.task(array.id, 100, 120)


def test_cancelling_it_takes_also_what_is_no_job_yet(opened, sample):
    ledger = opened.ledger
    array = add(ledger, sample)
    opened.again(array.first, 110)
    gone = ledger.arrays.cancel(array.id, "by ada", 120)
    assert len(gone) == FRESH - 1
    assert ledger.arrays.counts(array.id) == {JobState.RUNNING: 1, JobState.CANCELLED: 99}
    assert ledger.arrays.state(array.id) is JobState.RUNNING
    assert ledger.arrays.short() == []
    with pytest.raises(IllegalTransition, match=r"task 77 .* is cancelled"):
        ledger.arrays.task(array.id, 77, 130)
    opened.end(array.first, 140)
    assert ledger.arrays.state(array.id) is JobState.CANCELLED


def test_a_held_array_gets_no_more_jobs_until_it_is_released(opened, sample):
    ledger = opened.ledger
    array = add(ledger, sample)
    opened.again(array.first, 110)
    ledger.arrays.hold(array.id, "by ada", 120)
    assert ledger.arrays.counts(array.id) == {JobState.RUNNING: 1, JobState.HELD: 99}
    assert ledger.arrays.short() == []
    assert ledger.arrays.task(array.id, 50, 125).held == "by ada"
    ledger.arrays.release(array.id, 130)
    assert ledger.arrays.counts(array.id) == {JobState.RUNNING: 1, JobState.QUEUED: 99}
    assert all(not work.held for work in ledger.waiting())


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ((JobState.COMPLETED, JobState.COMPLETED), JobState.COMPLETED),
        ((JobState.COMPLETED, JobState.FAILED), JobState.FAILED),
        ((JobState.TIMED_OUT, JobState.COMPLETED), JobState.TIMED_OUT),
    ],
)
def test_its_end_is_that_of_its_tasks_together(opened, sample, ends, state):
    ledger = opened.ledger
    array = add(ledger, sample, tasks=(0, 1))
    for job, outcome in zip(ledger.arrays.jobs(array.id), ends, strict=True):
        assert not ledger.arrays.state(array.id).ended
        opened.again(job.id, 110)
        opened.end(job.id, 120, outcome)
    assert ledger.arrays.state(array.id) is state


def test_it_is_dropped_as_a_whole_and_not_before_its_last_task(opened, sample):
    ledger = opened.ledger
    array = add(ledger, sample, tasks=(0, 1), key="k")
    first, second = ledger.arrays.jobs(array.id)
    opened.again(first.id, 110)
    opened.end(first.id, 120)
    assert ledger.prune(10_000, 100) == []
    opened.again(second.id, 10_000)
    opened.end(second.id, 10_100)
    assert ledger.prune(10_150, 100) == []
    assert ledger.prune(10_300, 100) == [first.id, second.id]
    assert (ledger.arrays.records, ledger.arrays.tasks(array.id)) == ({}, {})
    assert ledger.submitted_as("ada", "k") is None
    assert opened.reopen().arrays.records == {}
    assert opened.ledger.add_job(sample.job(), 10_400).id == second.id + 1


def test_a_held_rest_keeps_the_array(ledger, sample):
    array = add(ledger, sample)
    ledger.arrays.hold(array.id, "by ada", 110)
    cancel_all(ledger, array, 120)
    assert ledger.arrays.state(array.id) is JobState.HELD
    assert ledger.prune(10_000, 100) == []


def test_what_waits_unborn_is_counted_for_its_owner_and_group(ledger, sample):
    add(ledger, sample)
    add(ledger, sample, owner="bob")
    gone = add(ledger, sample)
    ledger.arrays.cancel(gone.id, "", 110)
    assert ledger.arrays.unborn("ada", "vision") == 100 - FRESH
    assert ledger.arrays.unborn("ada", "speech") == 0
