"""Jobs from their start to their end.

Owns: handing a started job to the engine, recording how it ended, asking it to stop, and finding
everything again at boot. The ledger is written before the engine is asked. Never: which job is next, or
when a lease is free (see `release`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from jupyter_gpupool.engines.base import (
    Ended,
    Engine,
    EngineError,
    Started,
    StopCause,
    UnansweredError,
    WorkSpec,
)
from jupyter_gpupool.ledger import LedgerUnavailable
from jupyter_gpupool.ledger.records import Job, JobState, LeaseRecord
from jupyter_gpupool.ledger.stops import Mark
from jupyter_gpupool.policy.units import format_duration
from jupyter_gpupool.service import logs
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.commands import key_of, work_spec
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.news import News
from jupyter_gpupool.service.outcomes import Diagnosis, Outcome, diagnose, outcome_of
from jupyter_gpupool.service.progress import Progress
from jupyter_gpupool.service.release import Releases
from jupyter_gpupool.service.retries import retry
from jupyter_gpupool.service.snapshots import SnapshotStore
from jupyter_gpupool.service.tokens import JobTokens

log = logging.getLogger("gpupool")

R = TypeVar("R")
START_TRIES = 5
BACK_OFF_S = 10
DISK_FULL = os.strerror(errno.ENOSPC).lower()
LOOK_S = 5.0
LOST = "The engine lost the job's record, and none of its processes is left."
REBOOT = "The machine was restarted while the job ran."
LINGERS = (
    " Some of its processes do not end though they were killed: "
    "it is queued again as soon as the last of them is gone."
)


class Runs:
    """All attempts that are under way."""

    def __init__(
        self,
        config: ServiceConfig,
        controller: Controller,
        engine: Engine,
        releases: Releases,
        snapshots: SnapshotStore,
        tokens: JobTokens,
        progress: Progress,
        news: News,
    ):
        self._config = config
        self._controller = controller
        self._ledger = controller.ledger
        self._engine = engine
        self._releases = releases
        self._snapshots = snapshots
        self._tokens = tokens
        self._progress = progress
        self._news = news
        self._launches: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed_starts: dict[int, int] = {}
        self._asked: dict[str, tuple[StopCause, str]] = {}
        self._lingering: dict[str, Ended] = {}

    # -- starting --------------------------------------------------------------------------------

    def launch(self, lease: LeaseRecord) -> None:
        """Let the job of a new lease begin."""
        job = self._ledger.jobs[lease.work]
        self._news.job(job)
        key = key_of(job)
        self._launches[key] = task = self._spawn(self._launch(job, lease))
        task.add_done_callback(lambda _: self._launches.pop(key, None))

    async def _launch(self, job: Job, lease: LeaseRecord) -> None:
        try:
            card_mib = self._controller.frame.card_mib(lease.placement)
            spec = work_spec(
                job,
                lease,
                self._config,
                self._snapshots,
                card_mib,
                token=self._tokens.mint(job.id, job.attempt),
                user=job.owner if self._config.as_users(self._controller.policy) else None,
            )
            await self._start(job, spec)
        except (EngineError, OSError) as error:
            self._not_started(job, str(error))
            return
        self._failed_starts.pop(job.id, None)
        self._record_running(job)

    async def _start(self, job: Job, spec: WorkSpec) -> None:
        """Start an attempt; an engine that does not answer may have started it, and is asked again."""
        while True:
            try:
                await self._engine.start(spec)
                return
            except UnansweredError as error:
                if self._ledger.jobs[job.id].state is not JobState.STARTING:
                    return
                log.warning("Whether job %s was started is asked again: %s", job.id, error)

    def _record_running(self, job: Job) -> None:
        """Write that the attempt runs, unless it has ended meanwhile; when the disk is full, try again."""
        present = self._ledger.jobs.get(job.id)
        if present is None or present.attempt != job.attempt or present.state is not JobState.STARTING:
            return
        try:
            self._news.job(self._ledger.job_running(job.id, job.attempt, self._controller.now))
        except LedgerUnavailable as error:
            self._controller.put_off(error, self._record_running, job)

    def _not_started(self, job: Job, sentence: str) -> None:
        """Try again later: that the engine cannot start a job is not the job's fault; in the end, give up."""
        tries = self._failed_starts[job.id] = self._failed_starts.get(job.id, 0) + 1
        log.warning("Job %s was not started: %s", job.id, sentence)
        now = self._controller.now
        try:
            if tries < START_TRIES:
                self._ledger.requeue_job(
                    job.id, job.attempt, sentence, now, not_before=now + BACK_OFF_S * 2 ** (tries - 1)
                )
            else:
                self._failed_starts.pop(job.id)
                diagnosis = Diagnosis("not_started", sentence)
                self._end(job, Outcome(JobState.FAILED, sentence), diagnosis, free=True)
        except LedgerUnavailable as error:
            self._failed_starts[job.id] = tries - 1
            self._controller.put_off(error, self._not_started, job, sentence)
            return
        self._after(job.id)

    def _lease(self, job: Job) -> LeaseRecord | None:
        return None if job.lease is None else self._ledger.leases[job.lease]

    # -- ending ----------------------------------------------------------------------------------

    def ended(self, ended: Ended) -> None:
        """Record an end that the engine reports; a report may come twice, and late."""
        job = self._attempt(ended.key)
        if job and self._outcome(job, ended).state is None and self._left_for_others(job):
            self._spawn(self._weigh(job, ended))
        else:
            self._settle(ended)

    async def _weigh(self, job: Job, ended: Ended) -> None:
        """Look how far a job came before it left for others, then record its end."""
        mark = None
        try:
            mark = await aside(self._progress.mark, job)
        except Exception:
            log.exception("How far job %s has come is not known", job.id)
        self._settle(ended, mark)

    def _settle(self, ended: Ended, mark: Mark | None = None) -> None:
        try:
            self._record(ended, mark)
            self._controller.trouble = None
        except LedgerUnavailable as error:
            self._controller.put_off(error, self.ended, ended)

    def _record(self, ended: Ended, mark: Mark | None) -> None:
        job = self._attempt(ended.key)
        if job is not None and ended.cause == "start" and DISK_FULL in ended.message.lower():
            self._not_started(job, ended.message)
        elif job is not None:
            lease = self._lease(job)
            free = ended.tree_gone and (lease is None or self._releases.memory_is_free(lease))
            outcome = self._outcome(job, ended)
            again = retry(job, ended, outcome)
            if not ended.tree_gone and (again or outcome.state is None):
                self._linger(job, ended, again.reason if again else outcome.sentence)
                return
            if again:
                now = self._controller.now
                self._ledger.requeue_job(
                    job.id,
                    job.attempt,
                    again.reason,
                    now,
                    not_before=now + again.rest_s,
                    free=free,
                    failed=True,
                )
            elif outcome.state is not None:
                self._end(job, outcome, self._diagnosis(job, ended, outcome), ended, free=free)
            elif ended.cause == "stop" and self._left_for_others(job):
                least = self._controller.policy.jobs.min_run_time
                self._ledger.stops.left(job.id, job.attempt, mark, least, self._controller.now, free=free)
            else:
                self._ledger.requeue_job(
                    job.id, job.attempt, outcome.sentence, self._controller.now, free=free
                )
            self._asked.pop(ended.key, None)
            self._lingering.pop(ended.key, None)
            self._after(job.id)
        if ended.tree_gone:
            self._releases.tree_gone(ended.key)
            self._spawn(self._forget(ended.key))

    def _linger(self, job: Job, ended: Ended, reason: str) -> None:
        """Let a job that is to run again wait, with its lease, until no process of this attempt is left."""
        self._lingering[ended.key] = ended
        reason += LINGERS
        if job.state is not JobState.STOPPING or job.reason != reason:
            log.warning("Job %s: %s", job.id, reason)
            self._news.job(self._ledger.job_stopping(job.id, job.attempt, reason, self._controller.now))

    def _outcome(self, job: Job, ended: Ended) -> Outcome:
        """Return what the end means; work that was asked to end says who asked, and what was cancelled is."""
        found = outcome_of(ended, format_duration(job.limit_s))
        cause, sentence = self._asked.get(ended.key, ("", ""))
        if cause == "cancel" and (found.state is None or retry(job, ended, found)):
            return Outcome(JobState.CANCELLED, sentence)
        if ended.cause not in ("cancel", "stop") or found.state is JobState.COMPLETED:
            return found
        known = job.reason.removesuffix(LINGERS) if job.state is JobState.STOPPING else ""
        return replace(found, sentence=sentence or known or found.sentence)

    def _left_for_others(self, job: Job) -> bool:
        """Whether the present attempt of a job was asked to leave for others."""
        lease = self._lease(job)
        return lease is not None and lease.cause != ""

    def _attempt(self, key: str) -> Job | None:
        """Return the job whose present attempt this is, if it is still under way."""
        job_id, _, attempt = key.partition("/")
        job = self._ledger.jobs.get(int(job_id))
        return job if job and job.state.live and job.attempt == int(attempt) else None

    def _end(
        self,
        job: Job,
        outcome: Outcome,
        diagnosis: Diagnosis | None,
        ended: Ended | None = None,
        *,
        free: bool,
    ) -> None:
        self._ledger.end_job(
            job.id,
            job.attempt,
            outcome.state or JobState.FAILED,
            exit_code=ended.exit_code if ended else None,
            signal=ended.signal if ended else None,
            reason=outcome.sentence,
            diagnosis=diagnosis.as_dict() if diagnosis else None,
            now=self._controller.now,
            free=free,
        )

    def _diagnosis(self, job: Job, ended: Ended, outcome: Outcome) -> Diagnosis | None:
        if outcome.state is not JobState.FAILED:
            return None
        lease = self._lease(job)
        gpus = lease.placement.gpus if lease else ()
        text = self._end_of_log(job)
        gpu_mib = min((share.mib for share in gpus), default=None)
        return diagnose(ended, text, memory_mib=job.request.memory_mib, gpu_mib=gpu_mib)

    def _end_of_log(self, job: Job) -> str:
        try:
            return logs.tail(self._engine.files, job.id, str(job.attempt), "log")
        except EngineError as error:
            log.warning("The end of job %s is told without its log: %s", job.id, error)
            return ""

    def _after(self, job_id: int) -> None:
        """The room of an attempt is free: use it at once, then tell."""
        self._controller.changed([job_id])
        self._news.job(self._ledger.jobs[job_id])

    async def _forget(self, key: str) -> None:
        try:
            await self._engine.forget(key)
        except EngineError as error:
            log.info("The engine keeps the end of %s: %s", key, error)

    # -- stopping --------------------------------------------------------------------------------

    async def stop(self, job: Job, cause: StopCause, sentence: str, *, grace_s: int | None = None) -> None:
        """Ask a live job to end: SIGTERM to all of it, its grace (at most `grace_s`), then SIGKILL.

        The engine is asked before the ledger is written: an engine remembers what it was asked, so a
        service that dies in between has lost nothing.

        Raises
        ------
        EngineError
            The engine cannot be reached; nothing has changed.
        LedgerUnavailable
            The job was asked to stop, but that cannot be written down now.
        """
        key = key_of(job)
        if launch := self._launches.get(key):
            await asyncio.wait([launch])
        if self._attempt(key) is None:
            return
        self._asked[key] = cause, sentence
        if lingering := self._lingering.get(key):
            self.ended(lingering)
            return
        grace = job.grace_s if grace_s is None else min(job.grace_s, grace_s)
        try:
            await self._engine.stop(key, cause=cause, grace_s=grace)
        except EngineError as error:
            if not isinstance(error, UnansweredError):
                self._asked.pop(key, None)
            raise
        present = self._attempt(key)
        if present and (present.state is not JobState.STOPPING or present.reason != sentence):
            self._news.job(self._ledger.job_stopping(job.id, job.attempt, sentence, self._controller.now))

    def ask(self, lease: LeaseRecord) -> None:
        """Ask the job of a lease to leave for others, as the ledger says already.

        A service that dies in between asks again when it is back: an engine that was asked twice heard once.
        """
        job = self._ledger.jobs[lease.work]
        self._news.job(job)
        self._spawn(self._ask(job))

    async def _ask(self, job: Job) -> None:
        key = key_of(job)
        if launch := self._launches.get(key):
            await asyncio.wait([launch])
        while self._attempt(key):
            try:
                await self._engine.stop(key, cause="stop", grace_s=job.grace_s)
                return
            except EngineError as error:
                log.warning("Job %s is asked to stop again, soon: %s", job.id, error)
            await asyncio.sleep(LOOK_S)

    async def tell_limit(self, job: Job) -> bool:
        """Let the engine know how long a running job may run by now; False if it is ending already.

        One that cannot be reached hears of it when the service is next started.
        """
        try:
            return await self._engine.extend(key_of(job), job.limit_s)
        except EngineError as error:
            log.warning("Whether job %s has its whole time is not known: %s", job.id, error)
            return True

    # -- boot ------------------------------------------------------------------------------------

    async def adopt(self, attempts: Iterable[Started | Ended]) -> None:
        """Make ledger and engine agree after a restart of the service, or of the machine.

        Parameters
        ----------
        attempts
            All that the engine has and that are no servers'.

        Raises
        ------
        EngineError
            The engine cannot be reached.
        """
        known = {item.key: item for item in attempts}
        for job in [job for job in self._ledger.jobs.values() if job.state.live]:
            await self._adopt(job, known.pop(key_of(job), None))
        for key, item in known.items():
            if isinstance(item, Ended):
                self.ended(item)
            else:
                log.warning("The engine runs %s, which the ledger does not know as live; it is stopped", key)
                await self._engine.stop(key, cause="cancel", grace_s=0)

    async def _adopt(self, job: Job, item: Started | Ended | None) -> None:
        lease = self._lease(job)
        if isinstance(item, Ended):
            self.ended(item)
        elif isinstance(item, Started):
            self._record_running(job)
            self._spawn(self.tell_limit(job))
            if lease and lease.cause:
                self.ask(lease)
        elif lease is None or lease.boot_id != self._ledger.boot_id:
            self._ledger.requeue_job(job.id, job.attempt, REBOOT, self._controller.now)
        elif job.state is JobState.STARTING:
            self.launch(lease)
        elif await self._left(job):
            log.warning("Job %s runs, but the engine does not know it; it keeps its lease", job.id)
            self._spawn(self._wait_until_gone(job))
        else:
            never = job.state is JobState.STOPPING and job.started is None
            self._ledger.requeue_job(job.id, job.attempt, job.reason if never else LOST, self._controller.now)

    async def _wait_until_gone(self, job: Job) -> None:
        """Queue a job again that the engine does not know, once no process of it is left."""
        while await self._left(job):
            await asyncio.sleep(LOOK_S)
        if self._attempt(key_of(job)):
            self._ledger.requeue_job(job.id, job.attempt, LOST, self._controller.now)
            self._after(job.id)

    async def _left(self, job: Job) -> bool:
        """Whether a process of the job's attempt may be left: when nobody can say, one may."""
        try:
            return bool(await self._engine.left(key_of(job)))
        except EngineError as error:
            log.warning("Whether job %s still runs is not known: %s", job.id, error)
            return True

    async def close(self) -> None:
        """Wait for what is under way with the engine; jobs go on."""
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=2)
            for task in pending:
                task.cancel()

    def _spawn(self, work: Coroutine[object, object, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
