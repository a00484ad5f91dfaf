"""Whether what runs may go on longer than its limit.

Owns: what stands in the way of a longer lease: who reserved its cards or gets them back, a limit that has no
room for so long, a promise that would move. Never: how much longer is reasonable.
"""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.model import Lease, Plan, Reason, Seconds, Snapshot, Work
from jupyter_gpupool.scheduler.plan import plan
from jupyter_gpupool.scheduler.words import time_text


def obstacle(snapshot: Snapshot, now: Seconds, lease: Lease, end: Seconds) -> str | None:
    """Say in a sentence why `lease`, a job's, cannot last until `end`; None if it can."""
    return (
        _kept_for_others(snapshot, now, lease, end)
        or _no_room(snapshot, now, lease, end)
        or _moved(snapshot, now, lease, end)
    )


def _kept_for_others(snapshot: Snapshot, now: Seconds, lease: Lease, end: Seconds) -> str | None:
    """Say when its cards are somebody else's."""
    zone = snapshot.settings.zone
    cards = {share.uuid for share in lease.placement.gpus}
    for found in snapshot.reservations:
        if found.start < end and cards & found.gpus and not found.serves(lease.group, lease.user):
            return f"its cards are reserved from {time_text(found.start, now, zone)}."
    back = Ends(snapshot, now).hand_back(lease.placement.partition, now)
    if back is not None and back < end and not lease.resumable:
        return f"its lent cards are handed back at {time_text(back, now, zone)}."
    return None


def _no_room(snapshot: Snapshot, now: Seconds, lease: Lease, end: Seconds) -> str | None:
    """Say which limit would be broken if what runs had started now, with all of the time."""
    others = tuple(other for other in snapshot.leases if other.id != lease.id)
    board = Board(replace(snapshot, leases=others, waiting=()), now)
    work = _as_work(lease, now, end)
    for line in board.limits.bounds(work):
        if not line.fits(line.need(work, board.limits.amounts(lease, lease.placement)), now, end):
            what = {Reason.GROUP_QUOTA: "quota", Reason.BUDGET: "budget"}.get(line.cap.reason, "limit")
            return f"the {what} of {line.cap.owner} has no room for that."
    return None


def _moved(snapshot: Snapshot, now: Seconds, lease: Lease, end: Seconds) -> str | None:
    """Say whose promise would move."""
    longer = tuple(replace(other, end=end) if other.id == lease.id else other for other in snapshot.leases)
    before = _starts(plan(snapshot, now), now)
    after = _starts(plan(replace(snapshot, leases=longer), now), now)
    for promise in snapshot.promises:
        expected = before.get(promise.work, promise.start)
        if after.get(promise.work, end) > expected:
            work = next((work for work in snapshot.waiting if work.id == promise.work), None)
            start = time_text(expected, now, snapshot.settings.zone)
            return f"{work.kind if work else 'job'} {promise.work} is promised to start at {start}."
    return None


def _starts(found: Plan, now: Seconds) -> dict[int, Seconds]:
    """Return when work starts by a plan, of all that starts now or is promised."""
    return {promise.work: promise.start for promise in found.promises} | {
        start.work: now for start in found.starts
    }


def _as_work(lease: Lease, now: Seconds, end: Seconds) -> Work:
    return Work(
        id=lease.work,
        kind=lease.kind,
        user=lease.user,
        group=lease.group,
        priority=lease.priority,
        submitted=now,
        limit=end - now,
        request=lease.request,
        resumable=lease.resumable,
        grace=lease.grace,
        array=lease.array,
        array_limit=lease.array_limit,
    )
