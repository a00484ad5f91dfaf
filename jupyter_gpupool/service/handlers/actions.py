"""What is done to jobs, arrays and tasks.

Owns: when cancel, hold, release, requeue and extend are refused, and what they ask of ledger and runs. Never:
what a job looks like.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpupool.ledger.records import ArrayRecord, Job, JobState
from jupyter_gpupool.service import arrays
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import conflict
from jupyter_gpupool.service.extending import extend_job
from jupyter_gpupool.service.naming import Unborn, capital, in_words, label
from jupyter_gpupool.service.replies import JobReply
from jupyter_gpupool.service.submission import more_time
from jupyter_gpupool.service.wire import ExtendRequest


async def cancel(call: Call[None]) -> JobReply:
    """End a job or array: at once what waits; with its grace what runs."""
    service, found = call.service, _born(call)
    sentence = f"Cancelled by {call.who.user}."
    state = _state(service, found)
    if state.ended:
        if state is not JobState.CANCELLED:
            raise conflict(f"{capital(in_words(found))} has ended already: its state is {_words(state)}.")
    elif isinstance(found, ArrayRecord):
        await arrays.cancel(found, sentence, service.controller, service.runs, service.news)
    elif state.waiting:
        service.news.job(service.ledger.cancel_queued(found.id, sentence, service.now))
        service.controller.changed([found.id])
    else:
        await service.runs.stop(found, "cancel", sentence)
    return _reply(call)


async def hold(call: Call[None]) -> JobReply:
    """Keep a queued job from starting, or all tasks of an array that wait."""
    service, found, why = call.service, _born(call), f"by {call.who.user}"
    state = _state(service, found)
    if isinstance(found, ArrayRecord):
        if not service.ledger.arrays.counts(found.id)[JobState.QUEUED] and state is not JobState.HELD:
            raise conflict(f"No task of {in_words(found)} waits; only what is queued can be held.")
        arrays.hold(found, why, service.controller, service.news)
    elif state is not JobState.HELD:
        if state is not JobState.QUEUED:
            raise conflict(f"{capital(in_words(found))} is {_words(state)}; only a queued job can be held.")
        service.news.job(service.ledger.hold(found.id, why, service.now))
        service.controller.changed([found.id])
    return _reply(call)


async def release(call: Call[None]) -> JobReply:
    """Let a held job start, or all held tasks of an array."""
    service, found = call.service, _born(call)
    state = _state(service, found)
    if isinstance(found, ArrayRecord):
        if state.ended:
            raise conflict(
                f"{capital(in_words(found))} is {_words(state)}; only what is held can be released."
            )
        arrays.release(found, service.controller, service.news)
    elif state is not JobState.QUEUED:
        if state is not JobState.HELD:
            raise conflict(f"{capital(in_words(found))} is {_words(state)}; only a held job can be released.")
        service.news.job(service.ledger.release(found.id, service.now))
        service.controller.changed([found.id])
    return _reply(call)


async def requeue(call: Call[None]) -> JobReply:
    """Stop what runs and put it back into the queue, where it keeps its submit time."""
    service, found, sentence = call.service, _born(call), f"Requeued by {call.who.user}."
    state = _state(service, found)
    if not state.live:
        hint = "Submit it again." if state.ended else None
        raise conflict(
            f"{capital(in_words(found))} is {_words(state)}; only a running job can be requeued.", hint
        )
    if isinstance(found, ArrayRecord):
        await arrays.requeue(found, sentence, service.controller, service.runs)
    else:
        await service.runs.stop(found, "stop", sentence)
    return _reply(call)


async def extend(call: Call[ExtendRequest]) -> JobReply:
    """Give a running job more time, while no promise moves for it."""
    service, found = call.service, _born(call)
    more = more_time(call.body.time)
    if isinstance(found, ArrayRecord):
        raise conflict(
            f"{found.id} is an array; its tasks are extended one by one.",
            f"Name one of them, such as {found.id}[{found.tasks[0]}].",
        )
    await extend_job(service, found, more)
    return _reply(call)


def _born(call: Call[Any]) -> Job | ArrayRecord:
    """Return what the user may change; a task that is no job yet becomes one."""
    found = call.changeable()
    if not isinstance(found, Unborn):
        return found
    if found.array.cancelled:
        raise conflict(f"Task {label(found)} has ended already: it was cancelled.")
    return call.service.ledger.arrays.task(found.array.id, found.index, call.service.now)


def _state(service: Service, found: Job | ArrayRecord) -> JobState:
    return found.state if isinstance(found, Job) else service.ledger.arrays.state(found.id)


def _reply(call: Call[Any]) -> JobReply:
    return call.service.array_views.of(call.named(), call.who)


def _words(state: JobState) -> str:
    return state.value.replace("_", " ")
