"""Jobs and the queue: submitting and looking.

Owns: what becomes of a submit, and which jobs a list has. Never: the order of the queue, or what is done to a
job (see `actions`).
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jupyter_gpupool.devices.modes import mode_of
from jupyter_gpupool.ledger.arrays import rest_state
from jupyter_gpupool.ledger.records import ArrayRecord, Job, JobState, NewJob, NewSession
from jupyter_gpupool.scheduler.admission import dry_run
from jupyter_gpupool.scheduler.model import Snapshot, Work
from jupyter_gpupool.scheduler.reasons import explain
from jupyter_gpupool.service.accounts import account_for
from jupyter_gpupool.service.arrays import announce
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Bytes, Call, as_json
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.dependencies import befores, numbers, numbers_now
from jupyter_gpupool.service.errors import ApiError, invalid, nearest, not_found
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.naming import LIST, Named, Unborn
from jupyter_gpupool.service.replies import AlternativeReply, DryRunReply, JobReply, JobsReply, QueueReply
from jupyter_gpupool.service.submission import Rules, new_job, tasks_of, work_of
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
    new, array = new_job(call.body, rules, key), tasks_of(call.body)
    if key and (known := service.ledger.submitted_as(who.user, key)):
        return 201, service.array_views.of(known, who)
    only_look = call.query["dry_run"]
    if new.snapshot and not only_look and not service.snapshots.has(who.user, new.snapshot):
        raise ApiError(
            409,
            "snapshot_missing",
            f"The snapshot {new.snapshot} has not been received.",
            hint="Send it first.",
        )
    after = befores(call.body.after, service.ledger, new.owner, completed=True)
    after_any = befores(call.body.after_any, service.ledger, new.owner, completed=False)
    tasks = 1 if array is None else len(array[0])
    admit(service, new, rules, tasks)
    if only_look:
        new = replace(new, after=numbers_now(after), after_any=numbers_now(after_any))
        return 200, await _forecast(service, new, rules, tasks)
    first, then = (numbers(found, service.ledger, service.now) for found in (after, after_any))
    new = replace(new, after=first, after_any=then)
    return 201, service.array_views.of(_queued(service, new, array), who)


def _queued(
    service: Service, new: NewJob, array: tuple[tuple[int, ...], int | None] | None
) -> Job | ArrayRecord:
    """Queue a job or an array, and tell whom it concerns."""
    ledger = service.ledger
    if array is None:
        job = ledger.add_job(new, service.now)
        announce(job, service.controller, service.news)
        return job
    found = ledger.add_array(new, *array, service.now)
    for job in ledger.arrays.jobs(found.id):
        announce(job, service.controller, service.news)
    return found


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


def admit(service: Service, new: NewJob | NewSession, rules: Rules, tasks: int = 1) -> None:
    """Refuse what could never run, or of which so many `tasks` would be too much in the queue.

    Raises
    ------
    ApiError
        With the numbers.
    """
    bounded = isinstance(new, NewJob) and rules.limits(new.group).queued_jobs is not None
    if found := service.controller.refusal(work_of(new, now=0), count_queue=bounded, tasks=tasks):
        raise ApiError(422, found.code, found.message, found.used, found.limit, found.unit, hint=found.hint)


async def _forecast(service: Service, new: NewJob, rules: Rules, tasks: int) -> DryRunReply:
    """Ask the scheduler, off the loop, when the job would start as it is, and with other choices."""
    now = service.now
    snapshot = service.controller.snapshot(now)
    after = service.ledger.dependencies.open(new.after, new.after_any)
    work = replace(work_of(new, now, id=2**62), after=after)
    return await aside(_dry_run, service, snapshot, now, work, rules, tasks)


def _dry_run(
    service: Service, snapshot: Snapshot, now: int, work: Work, rules: Rules, tasks: int
) -> DryRunReply:
    found = dry_run(snapshot, now, work)
    mode = mode_of(whole=work.request.gpus > 0, simulated=service.pool.simulated)
    message = explain(found.verdict, snapshot).message if found.verdict else "It would start now."
    return {
        "tasks": tasks,
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
    """List the user's jobs, newest first, each array as one; or the tasks of one array, in their order."""
    states = _states(call.query["state"])
    service, who, most = call.service, call.who, call.query["limit"]
    if call.query["array"] is not None:
        found: Sequence[Named] = _tasks(service, call.query["array"], who, states)[:most]
    else:
        newest = heapq.nlargest(most, _own(service, who, states), key=lambda each: each.id)
        found = newest
    return {"jobs": await aside(lambda: [service.array_views.of(each, who) for each in found])}


def _own(service: Service, who: Identity, states: frozenset[JobState]) -> Iterator[Job | ArrayRecord]:
    ledger = service.ledger
    for job in ledger.jobs.values():
        if job.owner == who.user and job.array is None and job.state in states:
            yield job
    for array in ledger.arrays.records.values():
        if array.owner == who.user and ledger.arrays.state(array.id) in states:
            yield array


def _tasks(service: Service, number: int, who: Identity, states: frozenset[JobState]) -> list[Named]:
    """Return the tasks of a user's own array that are in one of the states."""
    arrays = service.ledger.arrays
    array = arrays.records.get(number)
    if array is None or array.owner != who.user:
        raise not_found(f"array {number} of yours", LIST)
    rest = array.rest if rest_state(array) in states else ()
    found: dict[int, Named] = {index: Unborn(array, index) for index in rest}
    found |= {job.index or 0: job for job in arrays.jobs(number) if job.state in states}
    return [found[index] for index in array.tasks if index in found]


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
    """List what waits, in the order of the last plan and each array as one, and what runs."""
    service, who = call.service, call.who
    jobs = list(service.ledger.jobs.values())
    return await aside(lambda: as_json(_queue(service, jobs, who)))


def _queue(service: Service, jobs: list[Job], who: Identity) -> QueueReply:
    views, arrays = service.array_views, service.ledger.arrays.records
    waiting: dict[int, Job | ArrayRecord] = {}
    for job in jobs:
        if job.state.waiting:
            found = job if job.array is None else arrays[job.array]
            waiting[found.id] = found

    def rank(found: Job | ArrayRecord) -> tuple[bool, int, int]:
        position = views.position(found)
        return position is None, position or 0, found.id

    return {
        "waiting": [views.of(found, who) for found in sorted(waiting.values(), key=rank)],
        "running": [views.of(job, who) for job in jobs if job.state.live],
    }


async def show(call: Call[None]) -> JobReply:
    """Show a job, an array or a task; what has just come waits a moment for the plan that knows it."""
    service, found = call.service, call.named()
    forecast, views = service.controller.forecast, service.array_views
    lead = views.lead(found)
    if lead is not None and forecast.of(lead.id) is None:
        service.controller.hurry()
        await forecast.wait(lead.id, PLAN_PATIENCE_S)
        found = call.named()
    reply = await aside(views.of, found, call.who)
    lead = views.lead(found)
    if lead is not None and reply["waiting"] and forecast.of(lead.id) is None:
        reply["waiting"]["position"] = _place(service, lead)
    return reply


def _place(service: Service, job: Job) -> int:
    """Return where a job stands by its submit time, before a plan has ranked it."""
    waiting = service.ledger.waiting()
    return 1 + bisect_left(waiting, (job.submitted, job.id), key=lambda work: (work.submitted, work.id))
