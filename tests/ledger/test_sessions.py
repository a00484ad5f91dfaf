"""Sessions: leases without a job."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger import IllegalTransition, LeaseState, SessionState


def grant(ledger, sample, id, now=10):
    return ledger.session_held(id, sample.place("SIM-0", mib=4096, milli=125), now, mode="timeslice")


def test_numbers_are_shared_with_jobs(opened, sample):
    ledger = opened.ledger
    ids = [
        ledger.add_job(sample.job(), 0).id,
        ledger.add_session(sample.session(), 0).id,
        ledger.add_job(sample.job(), 0).id,
    ]
    assert ids == [1, 2, 3]
    assert opened.reopen().add_session(sample.session(), 1).id == 4


def test_a_session_gets_a_held_lease_and_gives_it_back(opened, sample):
    ledger = opened.ledger
    waiting = ledger.add_session(sample.session(), 5)
    assert (waiting.state, waiting.pid, waiting.starttime, waiting.boot_id) == (
        SessionState.WAITING,
        4321,
        99,
        "boot-1",
    )
    lease = grant(ledger, sample, waiting.id)
    assert (lease.state, lease.kind, lease.start, lease.end, lease.whole) == (
        LeaseState.HELD,
        "session",
        10,
        7210,
        False,
    )
    held = ledger.sessions[waiting.id]
    assert (held.state, held.started, held.lease) == (SessionState.HELD, 10, lease.id)
    assert ledger.waiting() == ()
    ended = ledger.end_session(waiting.id, "given back", 50)
    assert (ended.state, ended.ended, ended.reason) == (SessionState.ENDED, 50, "given back")
    assert ledger.leases[lease.id].freed == 50
    assert opened.reopen().sessions == {waiting.id: ended}


def test_a_session_is_releasing_until_its_processes_are_gone(opened, sample):
    ledger = opened.ledger
    session = ledger.add_session(sample.session(), 5)
    lease = grant(ledger, sample, session.id)
    assert ledger.end_session(session.id, "its kernel died", 50, free=False).state is SessionState.RELEASING
    assert ledger.held()[0].id == lease.id
    ledger = opened.reopen()
    ledger.free_lease(lease.id, 60)
    ended = ledger.sessions[session.id]
    assert (ended.state, ended.ended, ended.reason) == (SessionState.ENDED, 60, "its kernel died")
    assert ledger.held() == ()


def test_a_waiting_session_may_give_up(ledger, sample):
    session = ledger.add_session(sample.session(), 5)
    assert ledger.end_session(session.id, "gave up", 6).state is SessionState.ENDED
    assert (ledger.waiting(), ledger.leases) == ((), {})
    with pytest.raises(IllegalTransition, match="session 1 is ended"):
        grant(ledger, sample, session.id)


def test_a_session_is_granted_once(ledger, sample):
    session = ledger.add_session(sample.session(), 5)
    grant(ledger, sample, session.id)
    with pytest.raises(IllegalTransition, match="session 1 is held"):
        grant(ledger, sample, session.id)
    assert len(ledger.leases) == 1


def test_a_server_gets_no_second_lease_before_its_first_is_free(opened):
    ledger, sample = opened.ledger, opened.sample
    first, second = (ledger.add_session(sample.session(server="bob/"), 5) for _ in range(2))
    other = ledger.add_session(sample.session(server="bob/second"), 5)
    ledger.session_held(first.id, sample.place("SIM-0", mib=4096, milli=125), 6, mode="timeslice")
    assert {work.id: work.after for work in ledger.waiting()} == {second.id: (first.id,), other.id: ()}
    place = sample.place("SIM-1", mib=4096, milli=125)
    with pytest.raises(IllegalTransition, match=f"comes after session {first.id} of the same server"):
        ledger.session_held(second.id, place, 6, mode="timeslice")
    ledger.end_session(first.id, "", 7, free=False)
    ledger = opened.reopen()
    assert [session.id for session in ledger.sessions_of("bob/")] == [first.id, second.id]
    ledger.free_lease(first.id, 8)
    assert {work.after for work in ledger.waiting()} == {()}
    assert ledger.session_held(second.id, place, 9, mode="timeslice").work == second.id


def test_a_ticket_that_lapses_lets_the_next_one_go_ahead(opened):
    ledger, sample = opened.ledger, opened.sample
    first, second = (ledger.add_session(sample.session(server="bob/"), 5) for _ in range(2))
    ledger.end_session(first.id, "lapsed", 6)
    assert [(work.id, work.after) for work in ledger.waiting()] == [(second.id, ())]
