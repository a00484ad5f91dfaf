"""What must be looked at now and then.

Owns: telling listeners of jobs' progress, finding who can resume, and dropping what retention no longer
keeps: records, job folders, snapshots. Never: dropping anything of a job that has not ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from jupyter_gpupool.engines.base import EngineError, JobFiles
from jupyter_gpupool.ledger import LedgerUnavailable
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.events import Bus
from jupyter_gpupool.service.news import News
from jupyter_gpupool.service.progress import Progress, ProgressReply
from jupyter_gpupool.service.snapshots import SnapshotStore

log = logging.getLogger("gpupool")

PROGRESS_S = 1.0
CHECKPOINT_S = 20.0
TIDY_S = 3600.0
UNUSED_SNAPSHOT_S = 86400


class Housekeeping:
    """The chores of one service."""

    def __init__(
        self,
        controller: Controller,
        files: JobFiles,
        progress: Progress,
        snapshots: SnapshotStore,
        bus: Bus,
        news: News,
    ):
        self._controller = controller
        self._files = files
        self._progress = progress
        self._ledger = controller.ledger
        self._snapshots = snapshots
        self._bus = bus
        self._news = news
        self._told: dict[int, ProgressReply] = {}
        self._to_remove: set[int] = set()
        self._tasks: list[asyncio.Task[NoReturn]] = []

    def open(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(_every(PROGRESS_S, self.tell_progress)),
            asyncio.create_task(_every(CHECKPOINT_S, self.find_checkpoints)),
            asyncio.create_task(_every(TIDY_S, self.tidy)),
        ]

    async def close(self) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def tell_progress(self) -> None:
        """Publish what running jobs have reported since the last look, if anybody listens."""
        if not self._bus.listeners:
            return
        held = [lease.work for lease in self._ledger.held() if lease.kind == "job"]
        running = [self._ledger.jobs[work] for work in held if work in self._ledger.jobs]
        self._told = {job.id: self._told[job.id] for job in running if job.id in self._told}
        for job in running:
            found = await aside(self._progress.of, job)
            if found is not None and self._told.get(job.id) != found:
                self._told[job.id] = found
                self._news.progress(job, found)

    async def find_checkpoints(self) -> None:
        """Notice which running jobs have written a checkpoint: they can resume, whatever they said."""
        live = [self._ledger.jobs[lease.work] for lease in self._ledger.held() if lease.kind == "job"]
        for job in [job for job in live if not job.resumable]:
            try:
                saved = await aside(self._progress.saved, job)
            except EngineError as error:
                log.info("Whether job %s has a checkpoint is not known: %s", job.id, error)
                continue
            present = self._ledger.jobs.get(job.id)
            if saved and present and present.state.live and present.attempt == job.attempt:
                self._ledger.stops.can_resume(job.id, self._controller.now)
                self._controller.changed()

    async def tidy(self) -> None:
        """Write down what the days that are over came to; drop what retention no longer keeps."""
        now, policy = self._controller.now, self._controller.policy
        try:
            closed = self._ledger.days.close(policy.zone, now)
            retention = max(policy.storage.retention, now - closed)
            self._to_remove |= set(self._ledger.prune(now, retention))
        except LedgerUnavailable as error:
            log.warning("%s", error)
            return
        used = [(job.owner, job.snapshot) for job in self._ledger.jobs.values() if job.snapshot]
        await aside(self._delete, used, now)

    def _delete(self, used: list[tuple[str, str]], now: int) -> None:
        jobs = self._remove_jobs()
        dropped = self._snapshots.drop_unused(used, now - UNUSED_SNAPSHOT_S)
        if jobs or dropped:
            log.info("Dropped %d old jobs and %d unused snapshots", jobs, dropped)

    def _remove_jobs(self) -> int:
        """Remove what jobs have left that are no longer kept; the engine may be away until the next time."""
        removed = 0
        for job in sorted(self._to_remove):
            try:
                self._files.remove(job)
            except EngineError as error:
                log.warning("The files of job %s are removed later: %s", job, error)
                break
            self._progress.forget(job)
            self._to_remove.discard(job)
            removed += 1
        return removed


async def _every(seconds: float, chore: Callable[[], Awaitable[None]]) -> NoReturn:
    while True:
        try:
            await chore()
        except Exception:
            log.exception("A chore failed; it is tried again")
        await asyncio.sleep(seconds)
