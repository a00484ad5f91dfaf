"""The ledger refuses to give a card away twice, whoever asks."""

from __future__ import annotations

import pytest

from jupyter_gpupool.ledger import Overbooked, StartOrder
from jupyter_gpupool.scheduler.model import Request
from tests.ledger.conftest import start_job

EIGHTH = 4096


def slice_of(sample, ledger, mib, *, now=0, compute=None):
    job = ledger.add_job(sample.job(request=Request(gpu_mib=mib, gpu_compute=compute)), now)
    return job.id, sample.place("SIM-0", mib=mib, milli=125)


def start(ledger, id, placement, mode="timeslice"):
    return start_job(ledger, id, placement, 1, mode=mode)


def test_a_card_is_filled_to_the_last_mib_and_no_further(ledger, sample):
    for _ in range(8):
        start(ledger, *slice_of(sample, ledger, EIGHTH))
    id, placement = slice_of(sample, ledger, 1)
    with pytest.raises(Overbooked, match="32768 of 32768 MiB are taken, 1 MiB were to be added"):
        start(ledger, id, placement)
    assert ledger.jobs[id].state == "queued"
    assert len(ledger.held()) == 8


def test_more_than_the_whole_card_is_refused(ledger, sample):
    with pytest.raises(Overbooked, match="0 of 32768 MiB are taken, 32769"):
        start(ledger, *slice_of(sample, ledger, 32769))


def test_a_whole_card_is_shared_with_nobody(ledger, sample, opened):
    job, _ = opened.running(uuid="SIM-0")
    with pytest.raises(Overbooked, match="a whole card is shared with nobody"):
        start(ledger, *slice_of(sample, ledger, 0))
    opened.end(job.id, 200)
    start(ledger, *slice_of(sample, ledger, EIGHTH))
    whole = ledger.add_job(sample.job(), 0)
    with pytest.raises(Overbooked, match="holds 1 lease"):
        start(ledger, whole.id, sample.place("SIM-0"), "whole")


def test_a_lease_that_is_releasing_still_occupies_its_card(ledger, sample, opened):
    job, lease = opened.running(uuid="SIM-0")
    opened.end(job.id, 200, free=False)
    waiting = ledger.add_job(sample.job(), 200)
    with pytest.raises(Overbooked):
        start(ledger, waiting.id, sample.place("SIM-0"), "whole")
    ledger.free_lease(lease.id, 201)
    start(ledger, waiting.id, sample.place("SIM-0"), "whole")


def test_compute_shares_never_exceed_a_card(ledger, sample):
    for share in (50, 50):
        start(ledger, *slice_of(sample, ledger, EIGHTH, compute=share), "mps")
    with pytest.raises(Overbooked, match="101 % of its compute"):
        start(ledger, *slice_of(sample, ledger, EIGHTH, compute=1), "mps")
    start(ledger, *slice_of(sample, ledger, EIGHTH), "mps")


def test_one_mode_per_occupied_card(ledger, sample):
    start(ledger, *slice_of(sample, ledger, EIGHTH))
    with pytest.raises(Overbooked, match="shared as timeslice, not as mps"):
        start(ledger, *slice_of(sample, ledger, EIGHTH), "mps")


def test_a_card_of_no_pool_and_a_card_named_twice_are_refused(ledger, sample):
    job = ledger.add_job(sample.job(request=Request(gpus=2)), 0)
    with pytest.raises(Overbooked, match="GPU-x: it is not a card of this pool"):
        start(ledger, job.id, sample.place("GPU-x"), "whole")
    with pytest.raises(Overbooked, match="names a card twice"):
        start(ledger, job.id, sample.place("SIM-0", "SIM-0"), "whole")


def test_starts_of_one_plan_are_all_or_none(ledger, sample):
    first, second = (ledger.add_job(sample.job(), 0) for _ in range(2))
    orders = [StartOrder(job.id, sample.place("SIM-0"), "whole") for job in (first, second)]
    with pytest.raises(Overbooked, match="job 2 cannot have card SIM-0"):
        ledger.start_jobs(orders, 1)
    assert {job.state for job in ledger.jobs.values()} == {"queued"}
    assert not ledger.leases


def test_a_session_is_checked_like_a_job(ledger, sample, opened):
    opened.running(uuid="SIM-0")
    session = ledger.add_session(sample.session(), 0)
    with pytest.raises(Overbooked, match="session 2 cannot have card SIM-0"):
        ledger.session_held(session.id, sample.place("SIM-0", mib=EIGHTH), 1, mode="timeslice")


def test_work_without_cards_takes_none(ledger, sample):
    job = ledger.add_job(sample.job(request=Request()), 0)
    assert start(ledger, job.id, sample.place(), "none").placement.gpus == ()


def test_cards_are_remembered_and_replaced(opened, sample, commits):
    assert opened.reopen().cards == {card.uuid: card for card in sample.cards()}
    commits.clear()
    opened.ledger.set_cards(sample.cards())
    assert not commits
    opened.ledger.set_cards(sample.cards(1))
    assert list(opened.reopen().cards) == ["SIM-0"]
