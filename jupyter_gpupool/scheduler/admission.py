"""What can never run, and what would happen to a request if it were made."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpupool.scheduler.model import Placement, Seconds, Snapshot, Verdict, Work


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request could never run: `code` is ``exceeds_limit`` or ``no_such_gpu``."""

    code: str
    message: str
    used: int | None = None
    limit: int | None = None
    unit: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """When and where a request would start.

    `start` is None when nobody can say; `verdict` is None when it would start at once.
    """

    start: Seconds | None
    placement: Placement | None
    verdict: Verdict | None


def refusal(work: Work, snapshot: Snapshot) -> Refusal | None:
    """Say why `work` could never run in this pool, or None when it can."""
    return None


def dry_run(snapshot: Snapshot, now: Seconds, work: Work) -> DryRun:
    """Forecast `work` as if it were submitted now; check `refusal` first."""
    return DryRun(None, None, None)
