"""Grants, requests and drains: one commit each, with who did it; as they were after a restart."""

from __future__ import annotations

from dataclasses import fields

import pytest

from jupyter_gpupool.ledger import IllegalTransition, LedgerUnavailable, UnknownId, tables
from jupyter_gpupool.ledger import grant_records as records
from jupyter_gpupool.ledger.extension import extended
from jupyter_gpupool.ledger.grant_records import (
    ActionRecord,
    NewBoost,
    NewRequest,
    NewReservation,
    RequestState,
)
from jupyter_gpupool.ledger.grants import Answer

BOOST = NewBoost(
    "vision", start=100, end=200, amounts={"gpu_milli": 2000}, giver="lab", because="A deadline."
)
KEPT = NewReservation(("SIM-0", "SIM-1"), 100, 200, groups=("vision",), users=("eve",), because="A course.")
WISH = NewRequest("boost", "ada", "vision", {"gpus": 2, "until": "3d"}, "The paper is due.")


def did(action: str = "grant", at: int = 50, by: str = "root") -> ActionRecord:
    return ActionRecord(at, by, action, f"{action} by {by}.")


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (tables.boosts, records.BoostRecord),
        (tables.reservations, records.ReservationRecord),
        (tables.requests, records.RequestRecord),
        (tables.drains, records.DrainRecord),
        (tables.over, records.OverRecord),
        (tables.charges, records.ChargeRecord),
    ],
)
def test_each_field_has_its_column(table, record):
    assert {column.name for column in table.columns} == {field.name for field in fields(record)}


def image(grants):
    return [
        dict(found)
        for found in (grants.boosts, grants.reservations, grants.requests, grants.drains, grants.over)
    ]


def test_everything_is_as_it_was_after_a_restart(opened):
    grants = opened.ledger.grants
    grants.boost(BOOST, did("boost"))
    grants.reserve(KEPT, did("reserve"))
    grants.ask(WISH, did("request", by="ada"))
    grants.drain("node1", "New fans.", did("drain"))
    grants.set_over({"vision"}, 70)
    before, done = image(grants), grants.actions(10)
    again = opened.reopen().grants
    assert image(again) == before
    assert again.actions(10) == done
    assert [one.action for one in done] == ["drain", "request", "reserve", "boost"]
    assert again.boosts[1].by == "root"
    assert again.reservations[2].users == ("eve",)


def test_boosts_and_reservations_have_one_sequence_which_goes_on(opened):
    assert opened.ledger.grants.boost(BOOST, did()).id == 1
    assert opened.ledger.grants.reserve(KEPT, did()).id == 2
    assert opened.reopen().grants.boost(BOOST, did()).id == 3


def test_a_grant_lasts_until_its_end_or_until_it_is_ended(opened):
    grants = opened.ledger.grants
    boost, kept = grants.boost(BOOST, did()), grants.reserve(KEPT, did())
    assert [boost.lasts(199), boost.lasts(200)] == [True, False]
    assert not grants.end_boost(boost.id, did("end boost", 150)).lasts(150)
    assert not opened.reopen().grants.boosts[boost.id].lasts(150)
    grants = opened.ledger.grants
    with pytest.raises(IllegalTransition, match="boost 1 is over already"):
        grants.end_boost(boost.id, did(at=160))
    with pytest.raises(IllegalTransition, match="reservation 2 is over already"):
        grants.end_reservation(kept.id, did(at=200))
    assert grants.end_reservation(kept.id, did(at=199)).ended == 199
    with pytest.raises(UnknownId, match="no boost 2"):
        grants.end_boost(2, did())


def test_an_approval_and_its_grant_are_one_commit(opened, commits):
    grants = opened.ledger.grants
    wish = grants.ask(WISH, did("request"))
    before = len(commits)
    boost = grants.boost(BOOST, did("approve", 60, "grace"), Answer(wish.id, "Until the paper is out."))
    assert len(commits) == before + 1
    decided = opened.reopen().grants.requests[wish.id]
    assert (decided.state, decided.grant) == (RequestState.APPROVED, boost.id)
    assert (decided.by, decided.answer, decided.decided) == ("grace", "Until the paper is out.", 60)


def test_a_request_is_decided_once(opened):
    grants = opened.ledger.grants
    first, second = grants.ask(WISH, did()), grants.ask(WISH, did())
    assert grants.refuse(Answer(first.id, "Not now."), did("deny")).state is RequestState.DENIED
    assert grants.withdraw(second.id, did("withdraw", by="ada")).state is RequestState.WITHDRAWN
    for id in (first.id, second.id):
        with pytest.raises(IllegalTransition, match="already"):
            grants.reserve(KEPT, did(), Answer(id, "Yes."))
    assert not grants.reservations
    with pytest.raises(UnknownId, match="no request 9"):
        grants.refuse(Answer(9, "No."), did())


def test_more_time_and_the_answer_are_one_commit(opened, commits):
    job, lease = opened.running(now=100)
    grants = opened.ledger.grants
    wish = grants.ask(NewRequest("time", "ada", "vision", {"work": job.id, "time": "1h"}, "Slow."), did())
    before = len(commits)
    grants.extend(extended(job, 3600, opened.ledger.leases), did("approve"), Answer(wish.id, "Fine."))
    assert len(commits) == before + 1
    ledger = opened.reopen()
    assert ledger.jobs[job.id].limit_s == job.limit_s + 3600
    assert ledger.leases[lease.id].end == lease.end + 3600
    assert ledger.grants.requests[wish.id].state is RequestState.APPROVED


def test_waiting_work_gets_more_time_and_what_has_ended_does_not(opened, sample):
    ledger = opened.ledger
    job, session = ledger.add_job(sample.job(), 0), ledger.add_session(sample.session(), 0)
    assert extended(job, 60, ledger.leases).jobs[job.id].limit_s == job.limit_s + 60
    assert not extended(job, 60, ledger.leases).leases
    assert extended(session, 60, ledger.leases).sessions[session.id].limit_s == session.limit_s + 60
    with pytest.raises(IllegalTransition, match="cancelled: it can have no more time"):
        extended(ledger.cancel_queued(job.id, "by ada", 5), 60, ledger.leases)
    held = ledger.session_held(session.id, sample.place("SIM-0", mib=4096, milli=125), 0, mode="timeslice")
    assert extended(ledger.sessions[session.id], 60, ledger.leases).leases[held.id].end == held.end + 60
    ledger.end_session(session.id, "bye", 9, free=False)
    with pytest.raises(IllegalTransition, match="releasing"):
        extended(ledger.sessions[session.id], 60, ledger.leases)


def test_a_node_is_drained_until_that_is_undone(opened):
    opened.ledger.grants.drain("node1", "New fans.", did("drain"))
    opened.ledger.grants.drain("node1", "New fans, and a new board.", did("drain"))
    assert opened.reopen().grants.drains["node1"].because == "New fans, and a new board."
    opened.ledger.grants.undrain("node1", did("undrain"))
    assert not opened.ledger.grants.drains
    assert not opened.reopen().grants.drains


def test_over_quota_keeps_its_beginning_while_it_lasts(opened, commits):
    grants = opened.ledger.grants
    grants.set_over({"vision", "speech"}, 70)
    before = len(commits)
    grants.set_over({"vision", "speech"}, 90)
    assert len(commits) == before
    grants.set_over({"vision"}, 95)
    grants = opened.reopen().grants
    assert {name: record.since for name, record in grants.over.items()} == {"vision": 70}
    grants.set_over(set(), 99)
    grants.set_over({"vision"}, 120)
    assert opened.reopen().grants.over["vision"].since == 120


def test_a_commit_that_fails_changes_nothing(opened, monkeypatch):
    grants = opened.ledger.grants
    wish = grants.ask(WISH, did())
    before = image(grants)

    def full(self, connection, change):
        raise LedgerUnavailable("The disk is full.")

    monkeypatch.setattr(type(opened.ledger._database.contents.grants), "save", full)
    with pytest.raises(LedgerUnavailable):
        grants.boost(BOOST, did(), Answer(wish.id, "Yes."))
    monkeypatch.undo()
    assert image(grants) == before
    assert image(opened.reopen().grants) == before
