"""Sums for reports over the records in memory: jobs per day, and who held how much for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jupyter_gpupool.ledger.records import Day, History, Job, JobState, LeaseRecord

_DAY = 86400


def history(jobs: Iterable[Job], leases: Iterable[LeaseRecord], since: int, until: int) -> History:
    """Return what happened in ``since ≤ t < until`` (seconds since the epoch); days are UTC days.

    A lease counts from the start of its work (or the grant, if it never ran) until it was freed,
    cut to the interval.
    """
    submitted: Counter[int] = Counter()
    ended: dict[int, Counter[JobState]] = {}
    for job in jobs:
        if since <= job.submitted < until:
            submitted[job.submitted // _DAY] += 1
        if job.ended is not None and since <= job.ended < until:
            ended.setdefault(job.ended // _DAY, Counter())[job.state] += 1
    days = tuple(
        Day(start=day * _DAY, submitted=submitted[day], ended=dict(ended.get(day, {})))
        for day in sorted(submitted.keys() | ended.keys())
    )
    return History(since, until, days, _gpu_milli_seconds(leases, since, until))


def _gpu_milli_seconds(leases: Iterable[LeaseRecord], since: int, until: int) -> dict[tuple[str, str], int]:
    held: Counter[tuple[str, str]] = Counter()
    for lease in leases:
        end = until if lease.freed is None else min(lease.freed, until)
        seconds = end - max(lease.start, since)
        if seconds > 0 and lease.placement.gpu_milli:
            held[lease.group, lease.owner] += lease.placement.gpu_milli * seconds
    return dict(held)
