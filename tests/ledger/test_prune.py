"""What retention drops, and what it keeps."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpupool.ledger.grant_records import ActionRecord, NewBoost, NewRequest, NewReservation
from jupyter_gpupool.ledger.grants import Answer
from jupyter_gpupool.scheduler.model import Promise
from tests.ledger.conftest import start_job


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


def test_grants_and_answered_requests_go_when_they_have_been_over_for_so_long(opened):
    grants = opened.ledger.grants
    did = ActionRecord(0, "root", "grant", "Granted.")
    wish = NewRequest("boost", "ada", "vision", {}, "")
    for end in (100, 200):
        grants.boost(NewBoost("vision", 0, end), did)
        grants.reserve(NewReservation(("SIM-0",), 0, end), did)
    grants.boost(NewBoost("vision", 0, 900), did)
    grants.end_boost(5, replace(did, at=100))
    denied, still_open, late = (grants.ask(wish, did) for _ in range(3))
    grants.refuse(Answer(denied.id, "No."), replace(did, at=100))
    grants.refuse(Answer(late.id, "No."), replace(did, at=101))
    assert opened.ledger.prune(now=160, retention_s=60) == []
    assert len(grants.boosts) == 3
    assert opened.ledger.prune(now=161, retention_s=60) == []
    for look in (lambda: opened.ledger, opened.reopen):
        there = look().grants
        assert [*there.boosts, *there.reservations] == [3, 4]
        assert list(there.requests) == [still_open.id, late.id]
    opened.ledger.prune(now=1000, retention_s=60)
    grants = opened.reopen().grants
    assert (grants.boost(NewBoost("vision", 0, 9), did).id, grants.ask(wish, did).id) == (6, 4)
    assert len(grants.actions(99)) == 13  # who did what is kept for good
