"""What can never run, and what would happen to a request if it were made now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.dispatch import Dispatch
from jupyter_gpupool.scheduler.feasibility import Feasibility, Refusal
from jupyter_gpupool.scheduler.floor import Floor
from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.model import Placement, Seconds, Snapshot, Verdict, Work
from jupyter_gpupool.scheduler.plan import plan_with_places
from jupyter_gpupool.scheduler.verdicts import Judge
from jupyter_gpupool.scheduler.words import counted


@dataclass(frozen=True, slots=True)
class DryRun:
    """When and where a request would start.

    `start` is None when nobody can say; `verdict` is None when it would start at once.
    """

    start: Seconds | None
    placement: Placement | None
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would happen to a request: one of these is there.

    `refusal`: it could never start; `placement`: it would start now; `verdict`: it would wait.
    """

    refusal: Refusal | None = None
    placement: Placement | None = None
    verdict: Verdict | None = None


def refusal(work: Work, snapshot: Snapshot, *, tasks: int = 1, unborn: int = 0) -> Refusal | None:
    """Say why `work` could not be accepted: it could never run, or its owner has too much in the queue.

    Parameters
    ----------
    tasks
        How many works like it are submitted together.
    unborn
        How many of its owner's works wait in the group beside those of the snapshot.
    """
    bare = replace(snapshot, waiting=(work,), leases=(), promises=())
    limits = Limits(bare, 0)
    floor = Floor(bare, 0, limits.resources)
    return Feasibility(bare, floor, limits).problem(work) or _queue_full(
        work, snapshot, limits, tasks, unborn
    )


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


def prospects(snapshot: Snapshot, now: Seconds, works: Sequence[Work]) -> list[Prospect]:
    """Judge requests for sessions, each as if it alone were made now, behind all sessions that wait.

    Parameters
    ----------
    snapshot
        Its jobs that wait are not looked at: sessions come before them.
    works
        With ids that nothing else has.
    """
    sessions = tuple(work for work in snapshot.waiting if work.kind == "session")
    dispatch = Dispatch(replace(snapshot, waiting=(*sessions, *works), promises=()), now)
    dispatch.run(sessions)
    board, ahead = dispatch.board, dispatch.order
    judge = Judge(board, dispatch.feasible, ())
    for work in ahead:
        judge.ranked(work)
    found = [_prospect(dispatch, judge, work) for work in works]
    for work in ahead:
        if expected := board.earliest(work):
            board.book(work, expected[1], expected[0], expected[0] + work.limit)
    return [_dated(board, work, prospect) for work, prospect in zip(works, found, strict=True)]


def _prospect(dispatch: Dispatch, judge: Judge, work: Work) -> Prospect:
    if problem := dispatch.feasible.problem(work):
        return Prospect(refusal=problem)
    found = dispatch.board.attempt(work)
    if isinstance(found, Placement):
        return Prospect(placement=found)
    reason, facts = judge.ranked(work, ahead=False)
    return Prospect(verdict=Verdict(work.id, reason, facts, len(dispatch.order) + 1, None, False))


def _dated(board: Board, work: Work, prospect: Prospect) -> Prospect:
    """Add when work that would wait is expected to start."""
    expected = board.earliest(work) if prospect.verdict else None
    if prospect.verdict is None or expected is None:
        return prospect
    return Prospect(verdict=replace(prospect.verdict, expected_start=expected[0]))


def _queue_full(work: Work, snapshot: Snapshot, limits: Limits, tasks: int, unborn: int) -> Refusal | None:
    limit = limits.of_user(work.group, work.user).queued_jobs
    if limit is None or work.kind != "job":
        return None
    queued = unborn + sum(
        other.kind == "job" and other.user == work.user and other.group == work.group
        for other in snapshot.waiting
        if other.id != work.id
    )
    if queued + tasks <= limit:
        return None
    more = f", and this array has {counted(tasks, 'task')}" if tasks > 1 else ""
    return Refusal(
        "exceeds_limit",
        f"{work.user} has {counted(queued, 'job')} queued in {work.group}{more}; the limit is {limit}.",
        queued,
        limit,
        "queued_jobs",
        "Wait until some have started, or cancel some.",
    )


__all__ = ["DryRun", "Prospect", "Refusal", "dry_run", "prospects", "refusal"]
