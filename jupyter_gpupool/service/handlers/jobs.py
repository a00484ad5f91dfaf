"""Jobs and the queue.

Owns: what each request on a job asks of ledger, controller and runs, and when it is refused. Never: the
order of the queue.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from jupyter_gpupool.devices.modes import mode_of
from jupyter_gpupool.ledger.records import Job, JobState, NewJob, NewSession
from jupyter_gpupool.scheduler.admission import dry_run
from jupyter_gpupool.scheduler.model import Snapshot, Work
from jupyter_gpupool.scheduler.reasons import explain
from jupyter_gpupool.service.accounts import account_for
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Bytes, Call, as_json
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import ApiError, conflict, invalid, nearest
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.replies import AlternativeReply, DryRunReply, JobReply, JobsReply, QueueReply
from jupyter_gpupool.service.submission import Rules, new_job, work_of
from jupyter_gpupool.service.visibility import public
from jupyter_gpupool.service.wire import JobRequest

PLAN_PATIENCE_S = 0.1
"""How long a look at a job waits for the plan that comes next."""
ALTERNATIVES_S = 2.0
"""How long a dry run tries other priorities and windows."""


async def submit(call: Call[JobRequest]) -> tuple[int, JobReply | DryRunReply]:
    """Queue a job, or say when it would start."""
    service, who = call.service, call.who
    rules = rules_of(service, who)
    await account_for(who.user, service.config, rules.policy)
    key = call.headers.get("Idempotency-Key")
    new = new_job(call.body, rules, key)
    if key and (known := service.ledger.submitted_as(who.user, key)):
        return 201, _job(service, known, who)
    if new.snapshot and not service.snapshots.has(who.user, new.snapshot):
        raise ApiError(
            409,
            "snapshot_missing",
            f"The snapshot {new.snapshot} has not been received.",
            hint="Send it first.",
        )
    admit(service, new, rules)
    if call.query["dry_run"]:
        return 200, await _forecast(service, new, rules)
    job = service.ledger.add_job(new, service.now)
    service.controller.submitted(job.id)
    service.news.job(job)
    return 201, _job(service, job, who)


def rules_of(service: Service, who: Identity) -> Rules:
    """Return what a request is read against now.

    Raises
    ------
    ApiError
        There is no good policy.
    """
    service.controller.refresh_policy()
    if not service.policies.usable:
        raise ApiError(
            503,
            "policy_invalid",
            "The pool has no good policy and takes nothing new.",
            hint=f"An administrator corrects the file: {public(service.policies.error)}",
        )
    return Rules(who, service.policy, service.controller.frame)


def admit(service: Service, new: NewJob | NewSession, rules: Rules) -> None:
    """Refuse what could never run, or what would be too much in the queue.

    Raises
    ------
    ApiError
        With the numbers.
    """
    bounded = isinstance(new, NewJob) and rules.limits(new.group).queued_jobs is not None
    if found := service.controller.refusal(work_of(new, now=0), count_queue=bounded):
        raise ApiError(422, found.code, found.message, found.used, found.limit, found.unit, hint=found.hint)


async def _forecast(service: Service, new: NewJob, rules: Rules) -> DryRunReply:
    """Ask the scheduler, off the loop, when the job would start as it is, and with other choices."""
    now = service.now
    snapshot = service.controller.snapshot(now)
    work = work_of(new, now, id=2**62)
    return await aside(_dry_run, service, snapshot, now, work, rules)


def _dry_run(service: Service, snapshot: Snapshot, now: int, work: Work, rules: Rules) -> DryRunReply:
    found = dry_run(snapshot, now, work)
    mode = mode_of(whole=work.request.gpus > 0, simulated=service.pool.simulated)
    message = explain(found.verdict, snapshot).message if found.verdict else "It would start now."
    return {
        "would_start": iso(found.start),
        "placement": service.views.placement(found.placement, mode) if found.placement else None,
        "reason": found.verdict.reason.value if found.verdict else None,
        "message": message,
        "alternatives": list(_alternatives(snapshot, now, work, rules)),
    }


def _alternatives(snapshot: Snapshot, now: int, work: Work, rules: Rules) -> Iterator[AlternativeReply]:
    """Forecast the same work with each other priority its group may take, and in each other window."""
    allowed = [
        name
        for name, priority in rules.policy.priorities.items()
        if priority.groups is None or work.group in priority.groups
    ]
    others = [replace(work, priority=name) for name in allowed if name != work.priority]
    others += [replace(work, window=name) for name in (None, *rules.policy.calendars) if name != work.window]
    give_up = time.monotonic() + ALTERNATIVES_S
    for other in others:
        start = dry_run(snapshot, now, other).start
        yield {"priority": other.priority, "window": other.window, "expected_start": iso(start)}
        if time.monotonic() > give_up:
            return


async def list_jobs(call: Call[None]) -> JobsReply:
    """List the user's jobs, newest first."""
    states = _states(call.query["state"])
    service, who = call.service, call.who
    own = (job for job in service.ledger.jobs.values() if job.owner == who.user and job.state in states)
    newest = heapq.nlargest(call.query["limit"], own, key=lambda job: job.id)
    return {"jobs": await aside(lambda: [_job(service, job, who) for job in newest])}


def _states(text: str | None) -> frozenset[JobState]:
    if text is None:
        return frozenset(JobState)
    names = [name.strip() for name in text.split(",")]
    known = [state.value for state in JobState]
    for name in names:
        if name not in known:
            guess = nearest(name, known)
            raise invalid(
                f"There is no state {name!r}.",
                f"Did you mean {guess}?" if guess else f"There is {', '.join(known)}.",
            )
    return frozenset(JobState(name) for name in names)


async def queue(call: Call[None]) -> Bytes:
    """List what waits, in the order of the last plan, and what runs."""
    service, who = call.service, call.who
    jobs = list(service.ledger.jobs.values())
    return await aside(lambda: as_json(_queue(service, jobs, who)))


def _queue(service: Service, jobs: list[Job], who: Identity) -> QueueReply:
    forecast = service.controller.forecast

    def rank(job: Job) -> tuple[bool, int, int]:
        verdict = forecast.of(job.id)
        position = verdict.position if verdict else None
        return position is None, position or 0, job.id

    waiting = sorted((job for job in jobs if job.state.waiting), key=rank)
    return {
        "waiting": [_job(service, job, who) for job in waiting],
        "running": [_job(service, job, who) for job in jobs if job.state.live],
    }


async def show(call: Call[None]) -> JobReply:
    """Show one job; one that has just come waits a moment for the plan that knows it."""
    service, job = call.service, call.job()
    forecast = service.controller.forecast
    if job.state is JobState.QUEUED and forecast.of(job.id) is None:
        service.controller.hurry()
        await forecast.wait(job.id, PLAN_PATIENCE_S)
        job = call.job()
    reply = await aside(_job, service, job, call.who)
    if job.state is JobState.QUEUED and reply["waiting"] and forecast.of(job.id) is None:
        reply["waiting"]["position"] = _place(service, job)
    return reply


def _place(service: Service, job: Job) -> int:
    """Return where a job stands by its submit time, before a plan has ranked it."""
    waiting = service.ledger.waiting()
    return 1 + bisect_left(waiting, (job.submitted, job.id), key=lambda work: (work.submitted, work.id))


async def cancel(call: Call[None]) -> JobReply:
    """End a job: at once when it waits; with its grace when it runs."""
    service, job = call.service, call.changeable_job()
    sentence = f"Cancelled by {call.who.user}."
    if job.state.ended:
        if job.state is JobState.CANCELLED:
            return _job(service, job, call.who)
        raise conflict(f"Job {job.id} has ended already: its state is {_words(job)}.")
    if job.state.waiting:
        service.news.job(service.ledger.cancel_queued(job.id, sentence, service.now))
        service.controller.changed([job.id])
    else:
        await service.runs.stop(job, "cancel", sentence)
    return _job(service, call.job(), call.who)


async def hold(call: Call[None]) -> JobReply:
    """Keep a queued job from starting."""
    service, job = call.service, call.changeable_job()
    if job.state is JobState.HELD:
        return _job(service, job, call.who)
    if job.state is not JobState.QUEUED:
        raise conflict(f"Job {job.id} is {_words(job)}; only a queued job can be held.")
    service.news.job(service.ledger.hold(job.id, f"by {call.who.user}", service.now))
    service.controller.changed([job.id])
    return _job(service, call.job(), call.who)


async def release(call: Call[None]) -> JobReply:
    """Let a held job start."""
    service, job = call.service, call.changeable_job()
    if job.state is JobState.QUEUED:
        return _job(service, job, call.who)
    if job.state is not JobState.HELD:
        raise conflict(f"Job {job.id} is {_words(job)}; only a held job can be released.")
    service.news.job(service.ledger.release(job.id, service.now))
    service.controller.changed([job.id])
    return _job(service, call.job(), call.who)


async def requeue(call: Call[None]) -> JobReply:
    """Stop a running job and put it back into the queue, where it keeps its submit time."""
    service, job = call.service, call.changeable_job()
    if not job.state.live:
        hint = "Submit it again." if job.state.ended else None
        raise conflict(f"Job {job.id} is {_words(job)}; only a running job can be requeued.", hint)
    await service.runs.stop(job, "stop", f"Requeued by {call.who.user}.")
    return _job(service, call.job(), call.who)


def _job(service: Service, job: Job, who: Identity) -> JobReply:
    return service.views.job(job, who, service.controller.forecast.of(job.id))


def _words(job: Job) -> str:
    return job.state.value.replace("_", " ")
