"""A job from submission to its outcome."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger import IllegalTransition, JobState, LeaseState, StartOrder, UnknownId
from jupyter_gpupool.ledger.records import Note
from jupyter_gpupool.scheduler.model import Work
from tests.ledger.conftest import start_job


def test_a_job_is_kept_as_it_was_submitted(opened, sample):
    new = sample.job()
    job = opened.ledger.add_job(new, 7)
    assert {name: getattr(job, name) for name in vars(new)} == vars(new)
    assert (job.id, job.state, job.submitted, job.attempt, job.outcome) == (1, JobState.QUEUED, 7, 0, None)
    assert opened.reopen().jobs == {1: job}


def test_the_whole_life_in_one_commit_a_step(opened, sample, commits):
    ledger = opened.ledger
    commits.clear()
    job = ledger.add_job(sample.job(), 10)
    lease = start_job(ledger, job.id, sample.place("SIM-0"), 20, mode="whole", charge_milli=2000)
    started = ledger.jobs[1]
    running = ledger.job_running(1, 1, 25)
    held = ledger.leases[lease.id]
    ended = opened.end(1, 90, JobState.FAILED, exit_code=3, reason="exit code 3", diagnosis={"oom": True})
    assert len(commits) == 4
    assert (started.state, started.attempt, started.lease) == (JobState.STARTING, 1, lease.id)
    assert (lease.state, lease.requested, lease.end, lease.boot_id) == (
        LeaseState.REQUESTED,
        20,
        3620,
        "boot-1",
    )
    assert (lease.mode, lease.charge_milli, lease.whole, lease.resumable) == ("whole", 2000, True, True)
    assert (running.state, running.started) == (JobState.RUNNING, 25)
    assert (held.state, held.start, held.end) == (LeaseState.HELD, 25, 3625)
    assert (ended.outcome, ended.exit_code, ended.ended) == ("failed", 3, 90)
    assert (ended.reason, ended.diagnosis) == ("exit code 3", {"oom": True})
    freed = ledger.leases[lease.id]
    assert (freed.state, freed.freed) == (LeaseState.FREE, 90)
    assert ledger.held() == ()
    again = opened.reopen()
    assert (again.jobs, again.leases) == ({1: ended}, {1: freed})


def test_many_starts_are_one_commit(ledger, sample, commits):
    jobs = [ledger.add_job(sample.job(), 0) for _ in range(2)]
    orders = [StartOrder(job.id, sample.place(f"SIM-{i}"), "whole") for i, job in enumerate(jobs)]
    commits.clear()
    leases = ledger.start_jobs(orders, 1)
    assert len(commits) == 1
    assert [(lease.id, lease.work) for lease in leases] == [(1, 1), (2, 2)]


def test_a_job_cannot_be_started_twice(ledger, sample):
    job = ledger.add_job(sample.job(), 0)
    orders = [StartOrder(job.id, sample.place(uuid), "whole") for uuid in ("SIM-0", "SIM-1")]
    with pytest.raises(IllegalTransition, match="job 1 is starting"):
        ledger.start_jobs(orders, 1)
    assert not ledger.leases
    ledger.start_jobs(orders[:1], 1)
    with pytest.raises(IllegalTransition):
        ledger.start_jobs(orders[1:], 2)
    assert len(ledger.leases) == 1


def test_the_same_key_of_the_same_owner_is_the_same_job(opened, sample, commits):
    ledger = opened.ledger
    job = ledger.add_job(sample.job(key="k"), 0)
    commits.clear()
    assert ledger.add_job(sample.job(key="k", name="other"), 5) is job
    assert not commits
    assert ledger.submitted_as("ada", "k") is job
    assert ledger.submitted_as("eve", "k") is None
    assert ledger.add_job(sample.job(key="k", owner="eve"), 5).id == 2
    assert ledger.add_job(sample.job(), 5).id == 3
    assert ledger.add_job(sample.job(), 5).id == 4
    assert opened.reopen().add_job(sample.job(key="k"), 9) == job


def test_a_requeued_job_keeps_its_submit_time_and_starts_again(opened, sample):
    ledger = opened.ledger
    job, first = opened.running(now=100)
    ledger.job_stopping(job.id, 1, "stopped for job 9", 200)
    queued = ledger.requeue_job(job.id, 1, "stopped for job 9", 230, not_before=290)
    assert (queued.state, queued.submitted, queued.attempt) == (JobState.QUEUED, 100, 1)
    assert (queued.reason, queued.not_before, queued.started) == ("stopped for job 9", 290, None)
    assert ledger.leases[first.id].state is LeaseState.FREE
    ledger = opened.reopen()
    assert ledger.jobs[job.id] == queued
    assert ledger.waiting()[0].not_before == 290
    second = start_job(ledger, job.id, sample.place("SIM-1"), 300, mode="whole")
    assert (second.id, second.attempt, ledger.jobs[job.id].lease) == (2, 2, 2)
    assert ledger.notes(job.id)[-1] == Note(230, job.id, "stopped for job 9")


def test_after_a_reboot_a_running_job_is_requeued_and_told_apart_by_its_boot(opened):
    job, lease = opened.running()
    ledger = opened.reopen(boot_id="boot-2")
    assert [record.id for record in ledger.leases.values() if record.boot_id != ledger.boot_id] == [lease.id]
    queued = ledger.requeue_job(job.id, 1, "the machine was rebooted", 500)
    assert (queued.state, ledger.held()) == (JobState.QUEUED, ())


def test_a_lease_whose_processes_are_not_gone_is_not_free(opened):
    job, lease = opened.running()
    opened.end(job.id, 200, free=False)
    assert opened.ledger.leases[lease.id].state is LeaseState.RELEASING
    assert [held.id for held in opened.ledger.held()] == [lease.id]
    ledger = opened.reopen()
    assert ledger.free_lease(lease.id, 210).freed == 210
    assert ledger.held() == ()
    with pytest.raises(IllegalTransition):
        ledger.free_lease(lease.id, 211)


def test_news_of_an_attempt_that_is_over_is_refused(opened, sample):
    ledger = opened.ledger
    job, _ = opened.running()
    ledger.requeue_job(job.id, 1, "rebooted", 200)
    start_job(ledger, job.id, sample.place("SIM-0"), 300, mode="whole")
    with pytest.raises(IllegalTransition, match="job 1 is starting at attempt 2: attempt 1 is not under way"):
        ledger.job_running(job.id, 1, 301)
    opened.end(job.id, 400)
    with pytest.raises(IllegalTransition, match="job 1 is completed"):
        opened.end(job.id, 401, JobState.FAILED)
    assert ledger.jobs[job.id].outcome == "completed"


def test_an_attempt_may_end_before_it_is_known_to_run(opened, sample):
    job = opened.ledger.add_job(sample.job(), 0)
    start_job(opened.ledger, job.id, sample.place("SIM-0"), 1, mode="whole")
    ended = opened.end(job.id, 2, JobState.FAILED, reason="no such interpreter")
    assert (ended.state, ended.started, opened.ledger.held()) == (JobState.FAILED, None, ())


def test_a_job_ends_only_with_an_outcome(opened):
    job, _ = opened.running()
    with pytest.raises(IllegalTransition, match="cannot end as queued"):
        opened.end(job.id, 200, JobState.QUEUED)


def test_hold_release_and_cancel(opened, sample):
    ledger = opened.ledger
    job = ledger.add_job(sample.job(), 0)
    assert ledger.hold(job.id, "by ada", 1).held == "by ada"
    assert ledger.waiting()[0].held == "by ada"
    with pytest.raises(IllegalTransition, match="job 1 is held: it cannot become starting"):
        start_job(ledger, job.id, sample.place("SIM-0"), 2, mode="whole")
    released = ledger.release(job.id, 3)
    assert (released.state, released.held) == (JobState.QUEUED, "")
    cancelled = ledger.cancel_queued(job.id, "by ada", 4)
    assert (cancelled.state, cancelled.ended, cancelled.reason) == (JobState.CANCELLED, 4, "by ada")
    assert [note.text for note in ledger.notes(job.id)] == ["by ada", "released", "by ada"]
    assert ledger.waiting() == ()


def test_a_hold_without_a_reason_holds_all_the_same(ledger, sample):
    job = ledger.add_job(sample.job(), 0)
    ledger.hold(job.id, "", 1)
    assert ledger.waiting()[0].held


def test_a_job_may_be_submitted_held(ledger, sample):
    job = ledger.add_job(sample.job(held="packages changed"), 0)
    assert (job.state, ledger.waiting()[0].held) == (JobState.HELD, "packages changed")
    assert ledger.release(job.id, 1).state is JobState.QUEUED


def test_a_running_job_is_not_cancelled_as_if_it_waited(opened):
    job, _ = opened.running()
    with pytest.raises(IllegalTransition, match="job 1 is running: it does not wait"):
        opened.ledger.cancel_queued(job.id, "by ada", 200)


def test_all_that_wait_are_cancelled_in_one_commit_or_none(opened, sample, commits):
    running, _ = opened.running()
    waiting = [opened.ledger.add_job(sample.job(), 200).id for _ in range(3)]
    with pytest.raises(IllegalTransition, match="job 1 is running"):
        opened.ledger.cancel_all_queued([*waiting, running.id], "closed", 300)
    assert len(opened.ledger.waiting()) == 3
    commits.clear()
    opened.ledger.cancel_all_queued(waiting, "closed", 300)
    assert len(commits) == 1
    assert {opened.ledger.jobs[id].reason for id in waiting} == {"closed"}
    assert opened.ledger.waiting() == ()


def test_a_key_is_known_to_its_owner_only(ledger, sample):
    job = ledger.add_job(sample.job(owner="ada", key="k"), 0)
    assert ledger.submitted_as("ada", "k") == job
    assert ledger.submitted_as("bob", "k") is None
    assert ledger.submitted_as("ada", "l") is None


def test_unknown_numbers_are_named(ledger, sample):
    with pytest.raises(UnknownId, match=r"^There is no job 7\.$"):
        ledger.hold(7, "", 0)
    with pytest.raises(UnknownId, match=r"^There is no session 7\.$"):
        ledger.end_session(7, "", 0)
    with pytest.raises(UnknownId, match=r"^There is no lease 7\.$"):
        ledger.free_lease(7, 0)


def test_what_waits_is_ready_for_the_scheduler_and_cached(ledger, sample):
    late = ledger.add_job(sample.job(), 20)
    early = ledger.add_job(sample.job(owner="eve", window=None, resumable=False), 10)
    session = ledger.add_session(sample.session(), 10)
    assert [work.id for work in ledger.waiting()] == [early.id, session.id, late.id]
    new = sample.job()
    assert ledger.waiting()[2] == Work(
        id=late.id,
        kind="job",
        user="ada",
        group="vision",
        priority="normal",
        submitted=20,
        limit=3600,
        request=new.request,
        resumable=True,
        window="night",
        grace=120,
    )
    assert ledger.waiting()[1].kind == "session"
    assert ledger.waiting() is ledger.waiting()
    before = ledger.waiting()
    start_job(ledger, early.id, sample.place("SIM-0"), 30, mode="whole")
    assert ledger.waiting() == (before[1], before[2])
    ledger.requeue_job(early.id, 1, "rebooted", 40)
    assert [work.id for work in ledger.waiting()] == [early.id, session.id, late.id]


def test_what_is_held_is_ready_for_the_scheduler_and_cached(opened):
    job, record = opened.running(now=100)
    (lease,) = opened.ledger.held()
    assert (lease.id, lease.work, lease.kind, lease.user, lease.group) == (
        record.id,
        job.id,
        "job",
        "ada",
        "vision",
    )
    assert (lease.start, lease.end, lease.whole, lease.resumable) == (100, 3700, True, True)
    assert (lease.grace, lease.asked) == (120, None)
    assert lease.placement == record.placement
    assert opened.ledger.held() is opened.ledger.held()
    views = opened.ledger.waiting(), opened.ledger.held()
    opened.reopen()
    assert (opened.ledger.waiting(), opened.ledger.held()) == views


def test_jobs_of_one_shell_share_one_environment(opened, sample):
    for environment in ({"A": "1"}, {"A": "1"}, {"A": "2"}):
        opened.ledger.add_job(sample.job(environment=environment), 0)

    def environments():
        return [job.environment for job in opened.ledger.jobs.values()]

    for _ in range(2):
        first, second, third = environments()
        assert first is second
        assert (first, third) == ({"A": "1"}, {"A": "2"})
        opened.reopen()


def test_the_environment_kept_is_not_the_callers(opened, sample):
    environment = {"A": "1"}
    job = opened.ledger.add_job(sample.job(environment=environment), 0)
    environment["A"] = "2"
    assert job.environment == {"A": "1"}


def test_notes_are_kept_in_order(opened):
    job, _ = opened.running()
    for now, text in ((1, "first"), (1, "second"), (0, "third")):
        opened.ledger.note(job.id, text, now)
    assert [note.text for note in opened.reopen().notes(job.id)] == ["first", "second", "third"]
    assert opened.ledger.notes(99) == []
