"""A writer that is killed loses nothing it acknowledged and leaves nothing half done."""

from __future__ import annotations

import random
import sqlite3

from jupyter_gpupool.ledger import Ledger

ORDER = ["queued", "starting", "running", "completed"]


def test_what_was_acknowledged_is_there_after_every_kill(tmp_path, writer):
    path = tmp_path / "ledger.sqlite"
    lines = random.Random(7)
    ended = 0
    for _ in range(6):
        process = writer(path)
        said = [process.acknowledged() for _ in range(lines.randint(1, 60))] + process.kill()
        check_file(path)
        ledger = Ledger.open(path, now=0, boot_id="b")
        check_agreement(ledger)
        for line in said:
            job = ledger.jobs[line["job"]]
            assert ORDER.index(job.state) >= ORDER.index(line["what"])
        assert max(ledger.jobs) <= said[-1]["job"] + 1
        completed = sum(job.outcome == "completed" for job in ledger.jobs.values())
        assert completed >= ended + sum(line["what"] == "completed" for line in said)
        ended = completed
        ledger.close()


def check_file(path):
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def check_agreement(ledger):
    """A job and its lease change together or not at all."""
    for job in ledger.jobs.values():
        lease = ledger.leases.get(job.lease)
        if job.state.live:
            assert lease.state == {"starting": "requested", "running": "held"}[job.state]
        else:
            assert lease is None or lease.state == "free"
    assert len(ledger.held()) <= 1
