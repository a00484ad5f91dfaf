"""What reports add up, and what retention drops."""

from __future__ import annotations

from jupyter_gpupool.ledger import JobState
from jupyter_gpupool.ledger.records import Day
from jupyter_gpupool.scheduler.model import Promise
from tests.ledger.conftest import start_job

DAY = 86400


def test_jobs_per_day_by_outcome(opened, sample):
    ledger = opened.ledger
    first, _ = opened.running(now=DAY - 10)
    opened.end(first.id, DAY + 5)
    second, _ = opened.running(now=DAY)
    opened.end(second.id, DAY + 9, JobState.FAILED, exit_code=1)
    ledger.cancel_queued(ledger.add_job(sample.job(), DAY + 20).id, "by ada", DAY + 21)
    ledger.add_job(sample.job(), 2 * DAY)
    expected = {JobState.COMPLETED: 1, JobState.FAILED: 1, JobState.CANCELLED: 1}
    assert ledger.history(0, 2 * DAY).days == (Day(0, 1, {}), Day(DAY, 2, expected))
    assert ledger.history(2 * DAY, 3 * DAY).days == (Day(2 * DAY, 1, {}),)
    assert ledger.history(3 * DAY, 4 * DAY).days == ()


def test_gpu_time_is_cut_to_the_interval(opened, sample):
    ledger = opened.ledger
    job, _ = opened.running(now=100)  # a whole card, 100 to 400
    opened.end(job.id, 400)
    session = ledger.add_session(sample.session(), 200)
    ledger.session_held(session.id, sample.place("SIM-1", mib=4096, milli=125), 200, mode="timeslice")
    assert ledger.history(0, 500).gpu_milli_seconds == {("vision", "ada"): 300_000, ("speech", "bob"): 37_500}
    assert ledger.history(150, 300).gpu_milli_seconds == {
        ("vision", "ada"): 150_000,
        ("speech", "bob"): 12_500,
    }
    assert ledger.history(400, 500).gpu_milli_seconds == {("speech", "bob"): 12_500}
    assert opened.reopen().history(0, 500).gpu_milli_seconds[("vision", "ada")] == 300_000


def test_every_attempt_counts(opened, sample):
    job, _ = opened.running(now=0)
    opened.ledger.requeue_job(job.id, 1, "rebooted", 60)
    start_job(opened.ledger, job.id, sample.place("SIM-0"), 100, mode="whole")
    opened.ledger.job_running(job.id, 2, 110)
    opened.end(job.id, 150)
    assert opened.ledger.history(0, DAY).gpu_milli_seconds == {("vision", "ada"): 100_000}


def test_prune_drops_what_ended_long_ago_with_all_that_hangs_on_it(opened, sample):
    ledger = opened.ledger
    old, _ = opened.running(now=0, environment={"OLD": "1"}, key="k")
    opened.end(old.id, 100)
    ledger.note(old.id, "a note", 100)
    session = ledger.add_session(sample.session(), 0)
    ledger.end_session(session.id, "gave up", 50)
    kept, _ = opened.running(now=150)
    opened.end(kept.id, 160)
    waiting = ledger.add_job(sample.job(), 0)
    ledger.set_promises([Promise(waiting.id, 60, sample.place("SIM-0"), 1)], [], 1)
    assert ledger.prune(now=160 + 59, retention_s=60) == [old.id, session.id]
    for look in (lambda: ledger, opened.reopen):
        there = look()
        assert set(there.jobs) == {kept.id, waiting.id}
        assert not there.sessions
        assert {lease.work for lease in there.leases.values()} == {kept.id}
        assert there.notes(old.id) == []
        assert list(there.promises) == [waiting.id]
    assert opened.ledger.prune(now=219, retention_s=60) == []
    again = opened.ledger.add_job(sample.job(environment={"OLD": "1"}, key="k"), 300)
    assert again.id == 5
    assert opened.reopen().jobs[5].environment == {"OLD": "1"}


def test_prune_keeps_what_ended_just_then_and_what_is_not_yet_gone(opened, sample):
    first, _ = opened.running(now=0)
    opened.end(first.id, 100)
    second, lease = opened.running(now=0)
    opened.end(second.id, 10, free=False)
    assert opened.ledger.prune(now=160, retention_s=60) == []
    assert opened.ledger.prune(now=161, retention_s=60) == [first.id]
    opened.ledger.free_lease(lease.id, 162)
    assert opened.ledger.prune(now=163, retention_s=60) == [second.id]


def test_numbers_are_never_given_again(opened, sample):
    job, lease = opened.running(now=0)
    opened.end(job.id, 10)
    opened.ledger.prune(now=100, retention_s=60)
    ledger = opened.reopen()
    job = ledger.add_job(sample.job(), 200)
    assert job.id == 2
    assert start_job(ledger, job.id, sample.place("SIM-0"), 200, mode="whole").id == lease.id + 1


def test_an_environment_goes_with_its_last_job_and_may_come_back(opened, sample, connections):
    ledger = opened.reopen()

    def environments():
        return connections[-1].execute("SELECT count(*) FROM environments").fetchone()[0]

    for owner in ("ada", "eve"):
        ledger.cancel_queued(ledger.add_job(sample.job(owner=owner), 0).id, "by ada", len(owner))
    late = ledger.add_job(sample.job(environment={"OWN": "1"}), 0)
    assert environments() == 2
    ledger.prune(100, 60)
    assert environments() == 1
    again = ledger.add_job(sample.job(), 100)
    assert opened.reopen().jobs == {late.id: late, again.id: again}
