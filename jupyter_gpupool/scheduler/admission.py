"""What can never run, and what would happen to a request if it were made now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_gpupool.scheduler.feasibility import Feasibility, Refusal
from jupyter_gpupool.scheduler.floor import Floor
from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.model import Placement, Seconds, Snapshot, Verdict, Work
from jupyter_gpupool.scheduler.plan import plan_with_places


@dataclass(frozen=True, slots=True)
class DryRun:
    """When and where a request would start.

    `start` is None when nobody can say; `verdict` is None when it would start at once.
    """

    start: Seconds | None
    placement: Placement | None
    verdict: Verdict | None


def refusal(work: Work, snapshot: Snapshot) -> Refusal | None:
    """Say why `work` could not be accepted: it could never run, or its owner has too much in the queue."""
    bare = replace(snapshot, waiting=(work,), leases=(), promises=())
    limits = Limits(bare, 0)
    floor = Floor(bare, 0, limits.resources)
    return Feasibility(bare, floor, limits).problem(work) or _queue_full(work, snapshot, limits)


def dry_run(snapshot: Snapshot, now: Seconds, work: Work) -> DryRun:
    """Forecast `work` as if it were submitted now; ask `refusal` first."""
    others = [other for other in snapshot.waiting if other.id != work.id]
    waiting = sorted([*others, work], key=lambda one: (one.submitted, one.id))
    plan, places = plan_with_places(replace(snapshot, waiting=tuple(waiting)), now)
    for start in plan.starts:
        if start.work == work.id:
            return DryRun(now, start.placement, None)
    promised = {promise.work: promise.placement for promise in plan.promises}
    verdict = plan.verdicts[work.id]
    placement = promised.get(work.id) or places.get(work.id)
    return DryRun(verdict.expected_start, placement, verdict)


def _queue_full(work: Work, snapshot: Snapshot, limits: Limits) -> Refusal | None:
    limit = limits.of_user(work.group, work.user).queued_jobs
    if limit is None or work.kind != "job":
        return None
    queued = sum(
        other.kind == "job" and other.user == work.user and other.group == work.group
        for other in snapshot.waiting
        if other.id != work.id
    )
    if queued < limit:
        return None
    return Refusal(
        "exceeds_limit",
        f"{work.user} has {queued} jobs queued in {work.group}; the limit is {limit}.",
        queued,
        limit,
        "queued_jobs",
        "Wait until some have started, or cancel some.",
    )


__all__ = ["DryRun", "Refusal", "dry_run", "refusal"]
