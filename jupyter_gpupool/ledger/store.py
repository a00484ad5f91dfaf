"""The ledger: draft of the public signatures, bodies follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_gpupool.ledger.place import Mount
from jupyter_gpupool.ledger.records import (
    CardRecord,
    History,
    Job,
    JobState,
    LeaseRecord,
    Move,
    NewJob,
    NewSession,
    Note,
    SessionRecord,
    StartOrder,
)
from jupyter_gpupool.scheduler.model import Lease, Placement, Promise, PromiseMove, Reason, Usage, Work


class Ledger:
    """One writer, database first, then memory; each method is one transaction."""

    boot_id: str
    jobs: Mapping[int, Job]  # live, waiting and ended ones until `prune`
    sessions: Mapping[int, SessionRecord]  # likewise
    leases: Mapping[int, LeaseRecord]  # live and free ones until `prune`
    promises: Mapping[int, Promise]  # by work
    cards: Mapping[str, CardRecord]  # by uuid

    @classmethod
    def open(cls, path: Path, *, now: int, boot_id: str, mounts: Sequence[Mount] | None = None) -> Ledger:
        """Open or create; LedgerError: network file system, newer schema, second writer; LedgerUnavailable: read-only, full."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the database and let another writer in."""
        raise NotImplementedError

    # views for the scheduler, cached
    def waiting(self) -> tuple[Work, ...]:
        """Queued and held jobs and waiting sessions, sorted by (submitted, id)."""
        raise NotImplementedError

    def held(self) -> tuple[Lease, ...]:
        """All leases that are not free, by id."""
        raise NotImplementedError

    def usage(self, now: int) -> Usage:
        """Decayed usage as of `now`, nano-GPU. Pure: nothing needs to be written periodically."""
        raise NotImplementedError

    # the pool
    def set_cards(self, cards: Iterable[CardRecord], now: int) -> None:
        """Record which cards there are; placements on others, or beyond these, are refused."""
        raise NotImplementedError

    # jobs
    def add_job(self, new: NewJob, now: int) -> Job:
        """Idempotent by (owner, key). `new.held` non-empty: starts in state held."""
        raise NotImplementedError

    def start_job(
        self, id: int, placement: Placement, now: int, *, mode: str, charge_milli: int = 1000
    ) -> LeaseRecord:
        """queued → starting (attempt + 1) with a lease `requested`; Overbooked, IllegalTransition."""
        raise NotImplementedError

    def start_jobs(self, orders: Sequence[StartOrder], now: int) -> list[LeaseRecord]:
        """All or none, one commit."""
        raise NotImplementedError

    def job_running(self, id: int, attempt: int, now: int) -> Job:
        """starting → running; lease requested → held; its end is now + limit."""
        raise NotImplementedError

    def job_stopping(self, id: int, attempt: int, reason: str, now: int) -> Job:
        """starting or running → stopping: it has been asked to leave."""
        raise NotImplementedError

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
        """Record the outcome; the lease becomes free (tree confirmed gone) or releasing (`free=False`)."""
        raise NotImplementedError

    def requeue_job(
        self, id: int, attempt: int, reason: str, now: int, *, not_before: int = 0, free: bool = True
    ) -> Job:
        """starting, running or stopping → queued, keeping submit time and age."""
        raise NotImplementedError

    def hold(self, id: int, reason: str, now: int) -> Job:
        """queued → held."""
        raise NotImplementedError

    def release(self, id: int, now: int) -> Job:
        """held → queued."""
        raise NotImplementedError

    def cancel_queued(self, id: int, reason: str, now: int) -> Job:
        """queued or held → cancelled."""
        raise NotImplementedError

    def free_lease(self, id: int, now: int) -> LeaseRecord:
        """releasing → free, once its processes are confirmed gone; ends the session it belonged to."""
        raise NotImplementedError

    # sessions
    def add_session(self, new: NewSession, now: int) -> SessionRecord:
        """A session that waits; its id is from the jobs' sequence."""
        raise NotImplementedError

    def session_held(
        self, id: int, placement: Placement, now: int, *, mode: str, charge_milli: int = 1000
    ) -> LeaseRecord:
        """waiting → held, with a held lease."""
        raise NotImplementedError

    def end_session(self, id: int, reason: str, now: int, *, free: bool = True) -> SessionRecord:
        """waiting → ended; held → ended (`free`) or releasing until `free_lease`."""
        raise NotImplementedError

    # promises and ages: after each full plan
    def set_promises(self, promises: Iterable[Promise], moves: Iterable[PromiseMove], now: int) -> None:
        """Replace the promises by the plan's; log the moves. Nothing is written when nothing changed."""
        raise NotImplementedError

    def accrue_age(self, waiting_reasons: Mapping[int, Reason | str], now: int) -> None:
        """Age counts while the reason is Reclaiming, Priority or Resources; ids without a verdict are left alone."""
        raise NotImplementedError

    # records for people
    def note(self, work: int, text: str, now: int) -> None:
        """Keep a sentence about a job or session."""
        raise NotImplementedError

    def notes(self, work: int) -> list[Note]:
        """Oldest first."""
        raise NotImplementedError

    def moves(self, work: int) -> list[Move]:
        """How its promise moved, oldest first."""
        raise NotImplementedError

    def history(self, since: int, until: int) -> History:
        """Jobs per UTC day and milli-GPU seconds by (group, user)."""
        raise NotImplementedError

    def prune(self, now: int, retention_s: int) -> list[int]:
        """Drop jobs and sessions that ended more than `retention_s` ago; return their ids."""
        raise NotImplementedError
