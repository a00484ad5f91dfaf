"""A full and a read-only disk: refused in a sentence, nothing changed, and on it goes afterwards."""

from __future__ import annotations

import copy

import pytest

from jupyter_gpupool.ledger import JobState, Ledger, LedgerUnavailable, Overbooked
from jupyter_gpupool.scheduler.model import Promise, PromiseMove, Reason
from tests.ledger.conftest import start_job


def image(ledger):
    """Return all that a ledger shows."""
    return copy.deepcopy(
        {
            "jobs": ledger.jobs,
            "sessions": ledger.sessions,
            "leases": ledger.leases,
            "promises": ledger.promises,
            "cards": ledger.cards,
            "waiting": ledger.waiting(),
            "held": {lease.id: lease for lease in ledger.held()},
            "usage": ledger.usage(5000),
        }
    )


class World:
    """A ledger with something in every state, and every kind of write to it."""

    def __init__(self, ledger, sample):
        self.ledger, self.sample = ledger, sample
        ledger.set_cards(sample.cards(4))
        self.queued = ledger.add_job(sample.job(), 0).id
        self.held = ledger.add_job(sample.job(held="by ada"), 0).id
        self.starting, self.running, self.stopping, self.over = (
            self.start(f"SIM-{i}", until)
            for i, until in enumerate(("starting", "running", "stopping", "ended"))
        )
        self.waiting = ledger.add_session(sample.session(), 0).id
        ledger.prune(0, 0)

    def start(self, uuid, until):
        job = self.ledger.add_job(self.sample.job(), 0)
        lease = start_job(self.ledger, job.id, self.sample.place(uuid), 1, mode="whole")
        if until != "starting":
            self.ledger.job_running(job.id, 1, 2)
        if until == "stopping":
            self.ledger.job_stopping(job.id, 1, "for job 9", 3)
        if until == "ended":
            self.end(job.id, free=False)
            return lease.id
        return job.id

    def end(self, id, free=True):
        self.ledger.end_job(
            id,
            1,
            JobState.FAILED,
            exit_code=1,
            signal=None,
            reason="x",
            diagnosis={"a": 1},
            now=9,
            free=free,
        )

    def writes(self):
        ledger, sample = self.ledger, self.sample
        promise = Promise(self.queued, 60, sample.place("SIM-0"), 1)
        return {
            "set_cards": lambda: ledger.set_cards(sample.cards(5)),
            "add_job": lambda: ledger.add_job(sample.job(key="k", environment={"NEW": "1"}), 4),
            "job_running": lambda: ledger.job_running(self.starting, 1, 4),
            "job_stopping": lambda: ledger.job_stopping(self.running, 1, "for job 9", 4),
            "end_job": lambda: self.end(self.running),
            "requeue_job": lambda: ledger.requeue_job(self.stopping, 1, "for job 9", 4),
            "hold": lambda: ledger.hold(self.queued, "by ada", 4),
            "release": lambda: ledger.release(self.held, 4),
            "cancel_queued": lambda: ledger.cancel_queued(self.held, "by ada", 4),
            "free_lease": lambda: ledger.free_lease(self.over, 4),
            "add_session": lambda: ledger.add_session(sample.session(), 4),
            "end_session": lambda: ledger.end_session(self.waiting, "gave up", 4),
            "set_promises": lambda: ledger.set_promises(
                [promise], [PromiseMove(self.queued, 50, 60, "late")], 4
            ),
            "accrue_age": lambda: ledger.accrue_age({self.queued: Reason.BACK_OFF}, 4),
            "note": lambda: ledger.note(self.queued, "a note", 4),
        }


WRITES = """
    set_cards add_job job_running job_stopping end_job requeue_job hold release cancel_queued
    free_lease add_session end_session set_promises accrue_age note
"""


@pytest.mark.parametrize("write", WRITES.split())
def test_a_disk_that_turns_read_only_changes_nothing(tmp_path, sample, connections, write):
    path = tmp_path / "ledger.sqlite"
    world = World(Ledger.open(path, now=0, boot_id="b"), sample)
    before = image(world.ledger)
    connections[-1].execute("PRAGMA query_only = 1")
    with pytest.raises(LedgerUnavailable, match=rf"The ledger {path} is read-only: nothing was changed"):
        world.writes()[write]()
    assert image(world.ledger) == before
    assert world.ledger.notes(world.queued) == []
    connections[-1].execute("PRAGMA query_only = 0")
    world.writes()[write]()
    after = image(world.ledger)
    world.ledger.close()
    ledger = Ledger.open(path, now=0, boot_id="b")
    assert image(ledger) == after
    ledger.close()


def test_what_is_committed_is_on_disk_before_it_is_acknowledged(opened, connections):
    opened.reopen()
    (mode,) = connections[-1].execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connections[-1].execute("PRAGMA synchronous").fetchone()
    assert (mode, synchronous) == ("wal", 2)  # 2: FULL


def test_prune_on_a_read_only_disk_changes_nothing(opened, connections):
    opened.reopen()
    job, _ = opened.running(key="k", environment={"OLD": "1"})
    opened.end(job.id, 110)
    before = image(opened.ledger)
    connections[-1].execute("PRAGMA query_only = 1")
    with pytest.raises(LedgerUnavailable):
        opened.ledger.prune(1000, 60)
    assert image(opened.ledger) == before
    connections[-1].execute("PRAGMA query_only = 0")
    assert opened.ledger.prune(1000, 60) == [job.id]


def until_full(write):
    """Repeat a write until the disk is full; return the sentence."""
    for _ in range(1000):
        try:
            write()
        except LedgerUnavailable as error:
            return str(error)
    raise AssertionError("the disk never filled up")


def test_a_full_disk_changes_nothing_and_the_ledger_goes_on(small_disk, sample):
    path = small_disk.point / "ledger.sqlite"
    ledger = Ledger.open(path, now=0, boot_id="b")
    ledger.set_cards(sample.cards())
    running, queued = (ledger.add_job(sample.job(), 0) for _ in range(2))
    start_job(ledger, running.id, sample.place("SIM-0"), 1, mode="whole")
    small_disk.fill()
    sentence = until_full(lambda: ledger.add_job(sample.job(), 2))
    assert sentence == (
        f"The disk of the ledger {path} is full: nothing was changed; free some space, then try again."
    )
    before = image(ledger)
    for _ in range(3):
        with pytest.raises(LedgerUnavailable):
            ledger.add_job(sample.job(entry={"argv": ["x" * 20000]}), 3)
    assert image(ledger) == before
    with pytest.raises(Overbooked):  # what needs no disk is still answered
        start_job(ledger, queued.id, sample.place("SIM-0"), 3, mode="whole")
    small_disk.make_room()
    assert ledger.add_job(sample.job(), 4).id == max(before["jobs"]) + 1
    ledger.job_running(running.id, 1, 4)
    after = image(ledger)
    ledger.close()
    ledger = Ledger.open(path, now=0, boot_id="b")
    assert image(ledger) == after
    ledger.close()


def test_a_ledger_cannot_be_made_on_a_full_disk_and_can_be_once_there_is_room(small_disk, sample):
    path = small_disk.point / "ledger.sqlite"
    small_disk.fill()
    with pytest.raises(LedgerUnavailable):
        Ledger.open(path, now=0, boot_id="b")
    small_disk.make_room()
    ledger = Ledger.open(path, now=0, boot_id="b")
    ledger.add_job(sample.job(), 0)
    ledger.close()


def test_a_ledger_that_finds_no_room_to_open_says_so(small_disk):
    path = small_disk.point / "ledger.sqlite"
    Ledger.open(path, now=0, boot_id="b").close()
    small_disk.fill()
    with pytest.raises(LedgerUnavailable, match=rf"The disk of the ledger {path} is full"):
        Ledger.open(path, now=0, boot_id="b")


def test_a_read_only_place_is_refused(small_disk, sample):
    path = small_disk.point / "ledger.sqlite"
    ledger = Ledger.open(path, now=0, boot_id="b")
    job = ledger.add_job(sample.job(), 0)
    ledger.close()
    small_disk.remount("ro")
    for place in (path, small_disk.point / "new" / "ledger.sqlite"):
        with pytest.raises(LedgerUnavailable, match="Read-only file system"):
            Ledger.open(place, now=0, boot_id="b")
    small_disk.remount("rw")
    ledger = Ledger.open(path, now=0, boot_id="b")
    assert ledger.jobs == {job.id: job}
    ledger.close()
