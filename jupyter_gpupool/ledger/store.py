"""The ledger: what is, durably.

Owns the rules of jobs, sessions, leases, promises and usage, and the views that the scheduler reads. Every
method is one transaction: it makes the records as they will be, commits them, and only then changes the
memory; when the commit fails (`LedgerUnavailable`) nothing changed anywhere. Never decides who gets what,
and reads no clock: `now` is whole seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpupool.ledger import steps
from jupyter_gpupool.ledger.age import aged, rested
from jupyter_gpupool.ledger.booking import Booking
from jupyter_gpupool.ledger.database import Change, Database, Removal
from jupyter_gpupool.ledger.days import Days
from jupyter_gpupool.ledger.errors import IllegalTransition, UnknownId
from jupyter_gpupool.ledger.extension import extended
from jupyter_gpupool.ledger.grants import Grants
from jupyter_gpupool.ledger.image import Image
from jupyter_gpupool.ledger.outbox import Outbox
from jupyter_gpupool.ledger.place import Mount
from jupyter_gpupool.ledger.records import (
    ArrayRecord,
    CardRecord,
    Job,
    JobState,
    LeaseRecord,
    LeaseState,
    Move,
    NewJob,
    NewSession,
    Note,
    SessionRecord,
    SessionState,
    StartOrder,
)
from jupyter_gpupool.ledger.usage import Accounts, held_nano
from jupyter_gpupool.scheduler.model import Lease, Placement, Promise, PromiseMove, Reason, Usage, Work


class Ledger:
    """Jobs, sessions, leases, promises and usage: on disk, with an image in memory; one writer.

    Attributes
    ----------
    boot_id : str
        The boot this process lives in; a lease with another one is from before a reboot.
    jobs, sessions, leases : mapping
        By number; those that ended stay until `prune`.
    promises : mapping
        By the number of the work.
    cards : mapping
        By UUID.
    stops : Stops
        Those for others.
    arrays : Arrays
        Jobs that differ in the number of their task only.
    dependencies : Dependencies
        Who waits for whom.
    """

    def __init__(self, database: Database, boot_id: str) -> None:
        contents = database.contents
        self._database = database
        self._next = contents.next
        self._accounts = Accounts(contents.accounts, contents.leases.values())
        self.boot_id = boot_id
        self.jobs: Mapping[int, Job] = contents.jobs
        self.sessions: Mapping[int, SessionRecord] = contents.sessions
        self.leases: Mapping[int, LeaseRecord] = contents.leases
        self.promises: Mapping[int, Promise] = contents.promises
        self.cards: Mapping[str, CardRecord] = contents.cards
        self.days = Days(database, contents)
        self.outbox = Outbox(database)
        self.grants = Grants(database, self._save, self._live_leases)
        self._image = Image(contents, self._save)
        self.stops = self._image.stops
        self.arrays = self._image.arrays
        self.dependencies = self._image.dependencies

    @classmethod
    def open(cls, path: Path, *, now: int, boot_id: str, mounts: Sequence[Mount] | None = None) -> Ledger:
        """Open the ledger file, made or upgraded as needed, and load it.

        Raises
        ------
        LedgerError
            On a network file system, with a second writer (its pid is named), with a newer version's ledger.
        LedgerUnavailable
            If the place is read-only or full, or the file is broken.
        """
        return cls(Database(path, now, mounts), boot_id)

    def close(self) -> None:
        """Close the file and let another writer in."""
        self._database.close()

    # What the scheduler reads

    def waiting(self) -> tuple[Work, ...]:
        """Return queued and held jobs and waiting sessions, sorted by (submitted, id); cached."""
        return self._image.waiting.all()

    def held(self) -> tuple[Lease, ...]:
        """Return all leases that are not free, by id; cached."""
        return self._image.held.all()

    def sessions_of(self, server: str) -> list[SessionRecord]:
        """Return the sessions of a Hub's server that are not over, oldest first."""
        return [self.sessions[id] for id in sorted(self._image.servers.of(server))]

    def usage(self, now: int) -> Usage:
        """Return decayed usage as of `now`; it follows from what is stored, nothing needs to be written."""
        return self._accounts.usage(now)

    # The pool

    def set_cards(self, cards: Iterable[CardRecord]) -> None:
        """Record which cards there are: placements on others, or beyond these, are refused."""
        there = {card.uuid: card for card in cards}
        if there != self.cards:
            self._database.save(Change(cards=there))

    # Jobs

    def add_job(self, new: NewJob, now: int) -> Job:
        """Queue a job (or hold it, if `new.held` says why); the same (owner, key) gives the same job."""
        known = self.submitted_as(new.owner, new.key) if new.key else None
        if isinstance(known, Job):
            return known
        job = steps.queued(self._kept(new), self._next["work"], now, now)
        self._save(Change(jobs={job.id: job}), now)
        return job

    def add_array(self, new: NewJob, tasks: tuple[int, ...], limit: int | None, now: int) -> ArrayRecord:
        """Queue jobs that differ in the number of their task only; at most `limit` run at once.

        The same (owner, key) gives the same array.
        """
        known = self.submitted_as(new.owner, new.key) if new.key else None
        if isinstance(known, ArrayRecord):
            return known
        return self.arrays.add(self._kept(new), tasks, limit, now)

    def submitted_as(self, owner: str, key: str) -> Job | ArrayRecord | None:
        """Return the job or array that `owner` has submitted under an idempotency key, if any."""
        id = self._image.keys.get((owner, key))
        if id is None:
            return None
        return self.jobs.get(id) or self.arrays.records[id]

    def start_jobs(self, orders: Sequence[StartOrder], now: int) -> list[LeaseRecord]:
        """Begin the next attempt of each job and request its lease; all or none, in one commit.

        Raises
        ------
        Overbooked
            If a placement does not fit on its cards.
        IllegalTransition
            If a job is not queued.
        """
        booking = Booking(self.cards, self._live_leases())
        change = Change()
        for order in orders:
            job = change.jobs.get(order.job) or self._job(order.job)
            lease = self._lease(
                job,
                now,
                id=self._next["lease"] + len(change.leases),
                kind="job",
                attempt=job.attempt + 1,
                placement=order.placement,
                mode=order.mode,
                charge_milli=order.charge_milli,
                resumable=job.resumable,
                grace_s=job.grace_s,
                state=LeaseState.REQUESTED,
            )
            change.jobs[job.id] = job.moved(
                JobState.STARTING, attempt=lease.attempt, lease=lease.id, started=None, **rested(job, now)
            )
            booking.take(lease)
            change.leases[lease.id] = lease
        self._save(change, now)
        return list(change.leases.values())

    def job_running(self, id: int, attempt: int, now: int) -> Job:
        """Record that an attempt runs: its lease is held and its time counts from now."""
        job, lease = self._attempt(id, attempt)
        running = job.moved(JobState.RUNNING, started=now)
        held = lease.moved(LeaseState.HELD, start=now, end=now + job.limit_s)
        self._save(Change(jobs={id: running}, leases={held.id: held}), now)
        return running

    def job_stopping(self, id: int, attempt: int, reason: str, now: int) -> Job:
        """Record that an attempt has been asked to leave, though not for others; see `Stops.ask`."""
        job, lease = self._attempt(id, attempt)
        stopping = job.moved(JobState.STOPPING, reason=reason)
        asked = replace(lease, asked=now if lease.asked is None else lease.asked)
        notes = [Note(now, id, reason)]
        self._save(Change(jobs={id: stopping}, leases={asked.id: asked}, notes=notes), now)
        return stopping

    def end_job(
        self,
        id: int,
        attempt: int,
        outcome: JobState,
        *,
        exit_code: int | None,
        signal: int | None,
        reason: str,
        diagnosis: Mapping[str, Any] | None,
        now: int,
        free: bool = True,
    ) -> Job:
        """Record how an attempt, and with it the job, ended.

        The lease becomes free if the processes are confirmed gone; else (``free=False``) it is releasing
        until `free_lease`.
        """
        job, lease = self._attempt(id, attempt)
        if not outcome.ended:
            raise IllegalTransition(f"job {id} cannot end as {outcome.value}: that is no outcome.")
        ended = job.moved(
            outcome, ended=now, exit_code=exit_code, signal=signal, reason=reason, diagnosis=diagnosis
        )
        released = lease.released(now, free=free)
        self._save(Change(jobs={id: ended}, leases={released.id: released}), now)
        return ended

    def requeue_job(
        self,
        id: int,
        attempt: int,
        reason: str,
        now: int,
        *,
        not_before: int = 0,
        free: bool = True,
        failed: bool = False,
    ) -> Job:
        """Put a job whose attempt is over back into the queue, with its submit time and age.

        It does not start again before `not_before`; `failed`: its program has, which counts against its
        retries; `free` is as in `end_job`.
        """
        job, lease = self._attempt(id, attempt)
        queued = job.moved(
            JobState.QUEUED,
            reason=reason,
            not_before=not_before,
            started=None,
            waiting_since=now,
            failures=job.failures + failed,
        )
        released = lease.released(now, free=free)
        notes = [Note(now, id, reason)]
        self._save(Change(jobs={id: queued}, leases={released.id: released}, notes=notes), now)
        return queued

    def extend_job(self, id: int, more: int, now: int) -> Job:
        """Let a job last `more` seconds longer.

        Raises
        ------
        IllegalTransition
            It has ended, or is about to.
        """
        self._save(extended(self._job(id), more, self.leases), now)
        return self.jobs[id]

    def hold(self, id: int, reason: str, now: int) -> Job:
        """Hold a queued job back; `reason` says who or why."""
        why = reason or "held"
        return self._move_job(steps.held(self._job(id), why, now), why, now)

    def release(self, id: int, now: int) -> Job:
        """Let a held job run again."""
        return self._move_job(steps.released(self._job(id), now), "released", now)

    def cancel_queued(self, id: int, reason: str, now: int) -> Job:
        """Cancel a job that waits."""
        self.cancel_all_queued([id], reason, now)
        return self.jobs[id]

    def cancel_all_queued(self, ids: Iterable[int], reason: str, now: int) -> None:
        """Cancel jobs that wait, all or none, in one commit."""
        change = Change()
        for id in ids:
            job = self._job(id)
            if not job.state.waiting:
                raise IllegalTransition(
                    f"job {id} is {job.state.value}: it does not wait, so stop it instead."
                )
            change.jobs[id] = steps.cancelled(job, reason, now)
            change.notes.append(Note(now, id, reason))
        self._save(change, now)

    # Sessions and leases

    def add_session(self, new: NewSession, now: int) -> SessionRecord:
        """Let a session wait for its lease; its number is from the sequence of the jobs'."""
        session = SessionRecord(
            id=self._next["work"],
            boot_id=self.boot_id,
            state=SessionState.WAITING,
            submitted=now,
            **vars(new),
        )
        self._save(Change(sessions={session.id: session}), now)
        return session

    def session_held(
        self, id: int, placement: Placement, now: int, *, mode: str, charge_milli: int = 1000
    ) -> LeaseRecord:
        """Grant a waiting session its lease; errors as in `start_jobs`.

        A server gets none before its earlier sessions are over.
        """
        session = self._session(id)
        if before := self._image.servers.before(session):
            raise IllegalTransition(f"session {id} comes after session {before[0]} of the same server.")
        lease = self._lease(
            session,
            now,
            id=self._next["lease"],
            kind="session",
            attempt=1,
            placement=placement,
            mode=mode,
            charge_milli=charge_milli,
            resumable=False,
            state=LeaseState.HELD,
        )
        held = session.moved(SessionState.HELD, started=now, lease=lease.id)
        Booking(self.cards, self._live_leases()).take(lease)
        self._save(Change(sessions={id: held}, leases={lease.id: lease}), now)
        return lease

    def end_session(self, id: int, reason: str, now: int, *, free: bool = True) -> SessionRecord:
        """End a session; with ``free=False`` it and its lease are releasing until `free_lease`."""
        session = self._session(id)
        if session.lease is None:
            ended = session.moved(SessionState.ENDED, ended=now, reason=reason)
            self._save(Change(sessions={id: ended}), now)
            return ended
        releasing = session.moved(SessionState.RELEASING, reason=reason)
        ended = releasing.moved(SessionState.ENDED, ended=now) if free else releasing
        released = self.leases[session.lease].released(now, free=free)
        self._save(Change(sessions={id: ended}, leases={released.id: released}), now)
        return ended

    def free_lease(self, id: int, now: int) -> LeaseRecord:
        """Free a releasing lease, its processes being confirmed gone; the session it was for ends."""
        lease = self.leases.get(id)
        if lease is None:
            raise UnknownId(f"There is no lease {id}.")
        freed = lease.moved(LeaseState.FREE, freed=now)
        change = Change(leases={id: freed})
        if lease.kind == "session":
            change.sessions[lease.work] = self._session(lease.work).moved(SessionState.ENDED, ended=now)
        self._save(change, now)
        return freed

    # After each plan

    def set_promises(self, promises: Iterable[Promise], moves: Iterable[PromiseMove], now: int) -> None:
        """Replace the promises by the plan's and log which moved later and why.

        A promise to work that no longer waits is left out. Nothing is written if nothing changed.
        """
        planned = {promise.work: promise for promise in promises if _queued(self._record(promise.work))}
        change = Change(moves=[Move(now, move.work, move.was, move.now, move.cause) for move in moves])
        change.promises |= {work: None for work in self.promises if work not in planned}
        change.promises |= {
            work: promise for work, promise in planned.items() if self.promises.get(work) != promise
        }
        if change.promises or change.moves:
            self._save(change, now)

    def accrue_age(self, waiting_reasons: Mapping[int, Reason], now: int) -> None:
        """Let the age of queued jobs grow, or rest, as their reasons say from `now` on; see `aged`."""
        if jobs := aged(self.jobs, waiting_reasons, now):
            self._save(Change(jobs=jobs), now)

    # For people

    def note(self, work: int, text: str, now: int) -> None:
        """Keep a sentence about a job or session."""
        self._save(Change(notes=[Note(now, work, text)]), now)

    def notes(self, work: int) -> list[Note]:
        """Return what was noted about a job or session, oldest first."""
        return self._database.notes(work)

    def moves(self, work: int) -> list[Move]:
        """Return how its promise moved, oldest first."""
        return self._database.moves(work)

    def prune(self, now: int, retention_s: int) -> list[int]:
        """Drop what ended more than `retention_s` ago; return the numbers of the jobs and sessions.

        With them go boosts, reservations and answered requests. What has a lease that is not free stays.
        Kept for good are what people did (`Grants.actions`) and what leases have cost: both must outlast what
        they tell of. Numbers are never given again.
        """
        live = {lease.work for lease in self._live_leases()}

        def old(record: Job | SessionRecord) -> bool:
            return record.ended is not None and record.ended < now - retention_s and record.id not in live

        arrays = self.arrays.over(old)
        tasks = [job.id for array in arrays for job in self.arrays.jobs(array)]
        jobs = tasks + [job.id for job in self.jobs.values() if job.array is None and old(job)]
        sessions = [session.id for session in self.sessions.values() if old(session)]
        gone = {*jobs, *sessions}
        grants = self.grants.outdated(now - retention_s)
        if gone or grants:
            leases = [lease.id for lease in self.leases.values() if lease.work in gone]
            self._database.remove(Removal(jobs, sessions, leases, self._next, arrays, grants))
            self._image.forget(jobs, arrays)
        return sorted(gone)

    # Inside

    def _kept(self, new: NewJob) -> NewJob:
        """Return a new job with the one copy of its environment."""
        return replace(new, environment=self._database.keep_environment(new.environment))

    def _job(self, id: int) -> Job:
        if id not in self.jobs:
            raise UnknownId(f"There is no job {id}.")
        return self.jobs[id]

    def _session(self, id: int) -> SessionRecord:
        if id not in self.sessions:
            raise UnknownId(f"There is no session {id}.")
        return self.sessions[id]

    def _attempt(self, id: int, attempt: int) -> tuple[Job, LeaseRecord]:
        job = self._job(id)
        if not job.state.live or job.attempt != attempt or job.lease is None:
            raise IllegalTransition(
                f"job {id} is {job.state.value} at attempt {job.attempt}: attempt {attempt} is not under way."
            )
        return job, self.leases[job.lease]

    def _lease(self, work: Job | SessionRecord, now: int, **terms: Any) -> LeaseRecord:
        """Return a new lease for `work`, which begins now."""
        return LeaseRecord(
            work=work.id,
            owner=work.owner,
            group=work.group,
            priority=work.priority,
            request=work.request,
            boot_id=self.boot_id,
            requested=now,
            start=now,
            end=now + work.limit_s,
            **terms,
        )

    def _live_leases(self) -> list[LeaseRecord]:
        return [self.leases[lease.id] for lease in self.held()]

    def _move_job(self, job: Job, note: str, now: int) -> Job:
        self._save(Change(jobs={job.id: job}, notes=[Note(now, job.id, note)]), now)
        return job

    def _record(self, work: int) -> Job | SessionRecord | None:
        return self.jobs.get(work) or self.sessions.get(work)

    def _save(self, change: Change, now: int) -> None:
        """Commit a change with what follows from it: promises end, accounts are settled before."""
        records: list[Job | SessionRecord] = [*change.jobs.values(), *change.sessions.values()]
        for record in records:
            if record.id in self.promises and not _queued(record):
                change.promises[record.id] = None
        before = {id: self.leases.get(id) for id in change.leases}
        for id, lease in change.leases.items():
            if held_nano(lease) != held_nano(before[id]):
                key = (lease.group, lease.owner)
                change.accounts[key] = self._accounts.settled(key, now)
        self.grants.charge(change, before)
        self._database.save(change)
        self.grants.follow(change)
        for id, lease in change.leases.items():
            self._accounts.change(before[id], lease)
        self._image.follow(change)


def _queued(record: Job | SessionRecord | None) -> bool:
    return record is not None and record.state in (JobState.QUEUED, SessionState.WAITING)
