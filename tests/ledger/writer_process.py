"""A process that writes to a ledger for ever and says after each commit what it did, one JSON line each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from jupyter_gpupool.ledger import CardRecord, JobState, Ledger, NewJob
from jupyter_gpupool.ledger.records import StartOrder
from jupyter_gpupool.scheduler.model import GpuShare, Placement, Request


def acknowledge(job, what):
    print(json.dumps({"job": job, "what": what}), flush=True)


def main(path: Path) -> None:
    ledger = Ledger.open(path, now=0, boot_id="b")
    for id, job in ledger.jobs.items():
        if job.state.live:
            ledger.requeue_job(id, job.attempt, "the writer was killed", 0)
    ledger.set_cards([CardRecord("SIM-0", "node1", 0, "Simulated", 32768)])
    placement = Placement(("node1",), (GpuShare("SIM-0", 32768),), 1000, "training")
    new = NewJob(
        "ada", "vision", "n", "command", "normal", 60, 1, Request(gpus=1), {"argv": ["true"] * 50}, "/tmp"
    )
    now = 0
    while True:
        now += 1
        job = ledger.add_job(new, now)
        acknowledge(job.id, "queued")
        ledger.start_jobs([StartOrder(job.id, placement, "whole")], now)
        acknowledge(job.id, "starting")
        ledger.job_running(job.id, 1, now)
        acknowledge(job.id, "running")
        ledger.end_job(
            job.id,
            1,
            JobState.COMPLETED,
            exit_code=0,
            signal=None,
            reason="",
            diagnosis=None,
            now=now,
        )
        acknowledge(job.id, "completed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
