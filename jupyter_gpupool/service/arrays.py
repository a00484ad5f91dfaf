"""Arrays while they wait and run.

Owns: that some of an array's tasks wait as jobs while others are none yet, and what is done to all of them
together. Never: which task is next, which is the scheduler's.
"""

from __future__ import annotations

import asyncio

from jupyter_gpupool.ledger.records import ArrayRecord, Job
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.news import News
from jupyter_gpupool.service.runs import Runs


def top_up(controller: Controller, news: News) -> None:
    """Make jobs of the next tasks of all arrays of which only a few still wait.

    Raises
    ------
    LedgerUnavailable
        It cannot be written down; the tasks follow the next time.
    """
    ledger = controller.ledger
    for array in ledger.arrays.short():
        for job in ledger.arrays.expand(array, controller.now):
            announce(job, controller, news)


def announce(job: Job, controller: Controller, news: News) -> None:
    """Let a job that has just been queued start when there is room, and tell."""
    controller.submitted(job.id)
    news.job(job)


async def cancel(array: ArrayRecord, sentence: str, controller: Controller, runs: Runs, news: News) -> None:
    """End all tasks of an array: at once where they wait; with their grace where they run.

    Raises
    ------
    EngineError, LedgerUnavailable
        As `Runs.stop`.
    """
    ledger = controller.ledger
    _changed(ledger.arrays.cancel(array.id, sentence, controller.now), controller, news)
    live = [job for job in ledger.arrays.jobs(array.id) if job.state.live]
    await asyncio.gather(*(runs.stop(job, "cancel", sentence) for job in live))


async def requeue(array: ArrayRecord, sentence: str, controller: Controller, runs: Runs) -> None:
    """Stop the tasks of an array that run, and queue them again; errors as in `cancel`."""
    live = [job for job in controller.ledger.arrays.jobs(array.id) if job.state.live]
    await asyncio.gather(*(runs.stop(job, "stop", sentence) for job in live))


def hold(array: ArrayRecord, why: str, controller: Controller, news: News) -> None:
    """Keep all tasks of an array from starting that wait."""
    _changed(controller.ledger.arrays.hold(array.id, why, controller.now), controller, news)


def release(array: ArrayRecord, controller: Controller, news: News) -> None:
    """Let all held tasks of an array start."""
    _changed(controller.ledger.arrays.release(array.id, controller.now), controller, news)


def _changed(jobs: list[Job], controller: Controller, news: News) -> None:
    controller.changed([job.id for job in jobs])
    for job in jobs:
        news.job(job)
