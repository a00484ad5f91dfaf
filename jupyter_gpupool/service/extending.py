"""More time for a job that runs.

Owns: how much a user may add, and that nothing promised moves for it. Never: what stands in the way, which
the scheduler says (`obstacle`).
"""

from __future__ import annotations

from jupyter_gpupool.ledger.records import Job, JobState, LeaseRecord
from jupyter_gpupool.policy.units import format_duration
from jupyter_gpupool.scheduler.extension import obstacle
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import ApiError, conflict
from jupyter_gpupool.service.naming import capital, in_words
from jupyter_gpupool.service.submission import limits_of

TRIES = 5
"""So often a wish is judged anew because the pool has changed meanwhile."""


async def extend_job(service: Service, job: Job, more: int) -> None:
    """Let a running job run `more` seconds longer.

    Raises
    ------
    ApiError
        It does not run, may not run so long, or somebody was promised what it would keep.
    """
    name = capital(in_words(job))
    lease = service.ledger.leases[job.lease] if job.lease is not None else None
    if job.state is not JobState.RUNNING or lease is None:
        state = job.state.value.replace("_", " ")
        if job.state.ended:
            raise conflict(f"{name} has ended already: its state is {state}.")
        hint = "Cancel it, and submit it again with another --time." if job.state.waiting else None
        raise conflict(f"{name} is {state}; only a running job can get more time.", hint)
    _allow(service, job, job.limit_s + more)
    if found := await _obstacle(service, job, lease, lease.end + more):
        raise conflict(
            f"{name} cannot have {format_duration(more)} more: {found}",
            "Ask for less, or let it go on from a checkpoint in a job of its own.",
        )
    longer = service.ledger.extend_job(job.id, more, service.now)
    service.news.job(longer)
    service.controller.changed()
    if not await service.runs.tell_limit(longer):
        raise conflict(f"{name} is ending already; it gets no more time.")


async def _obstacle(service: Service, job: Job, lease: LeaseRecord, end: int) -> str | None:
    """Say why the lease of a job cannot last until `end`; None if it can, in the pool as it is by then.

    Raises
    ------
    ApiError
        The job has changed meanwhile, or others change so fast that nobody can say.
    """
    controller, ledger = service.controller, service.ledger
    for _ in range(TRIES):
        now, frame = service.now, controller.frame
        snapshot = controller.snapshot(now)
        seen = {held.id: held for held in snapshot.leases}
        found = await aside(obstacle, snapshot, now, seen[lease.id], end)
        if ledger.jobs[job.id] is not job:
            raise conflict(f"{capital(in_words(job))} has changed just now.", "Ask again.")
        promised = tuple(ledger.promises.values()) == snapshot.promises
        if found or (
            promised
            and frame is controller.frame
            and all(seen.get(held.id) is held for held in ledger.held())
        ):
            return found
    raise conflict(
        f"So much changes just now that nobody can say whether {in_words(job)} may have more time.",
        "Ask again.",
    )


def _allow(service: Service, job: Job, limit: int) -> None:
    most = limits_of(service.controller.frame, job.group, job.owner).job_time
    if most is not None and limit > most:
        raise ApiError(
            422,
            "exceeds_limit",
            f"With that {in_words(job)} would have {format_duration(limit)}; {job.owner} may have "
            f"{format_duration(most)} for a job in {job.group}.",
            used=limit,
            limit=most,
            unit="s",
            hint=f"Ask for {format_duration(most - job.limit_s)} or less." if most > job.limit_s else None,
        )
