"""How the age of a waiting job grows; it raises the job's priority.

Owns: under which reasons it grows, and when what has grown is written down. Pure. Never: a job's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpupool.ledger.records import Job, JobState
from jupyter_gpupool.scheduler.model import Reason

AGEING = frozenset({Reason.RECLAIMING, Reason.PRIORITY, Reason.RESOURCES})
AGE_GRAIN_S = 3600
AGE_BATCH = 200  # so that no pass waits long for the ages of ten thousand jobs


def aged(jobs: Mapping[int, Job], reasons: Mapping[int, Reason], now: int) -> dict[int, Job]:
    """Return the queued jobs whose age begins to grow, stops growing, or is due to be written down.

    Age grows under some reasons only, and from the moment a job is queued until its first reason is known;
    jobs without a reason here go on as they are. What has grown goes into `Job.age_s` when the job stops
    ageing, and about hourly until then, a few jobs at a time.
    """
    changed: dict[int, Job] = {}
    due = AGE_BATCH
    for id, reason in reasons.items():
        job = jobs.get(id)
        if job is None or job.state is not JobState.QUEUED:
            continue
        since = job.waiting_since
        if reason not in AGEING:
            if since is not None:
                changed[id] = replace(job, **rested(job, now))
        elif since is None:
            changed[id] = replace(job, waiting_since=now)
        elif due and now - since >= AGE_GRAIN_S:
            changed[id] = replace(job, **rested(job, now) | {"waiting_since": now})
            due -= 1
    return changed


def rested(job: Job, now: int) -> dict[str, Any]:
    """Return the fields of a job whose age stops growing."""
    grown = 0 if job.waiting_since is None else max(0, now - job.waiting_since)
    return {"age_s": job.age_s + grown, "waiting_since": None}
