"""How far running jobs say they are.

Owns: the last line of a job's ``progress.jsonl``, as far as it is sense. What a job says of itself is shown
and never believed: it decides nothing. Never: an outcome.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from jupyter_gpupool.ledger.records import Job
from jupyter_gpupool.service import logs
from jupyter_gpupool.service.moments import iso

TAIL = 8192


class ProgressReply(TypedDict):
    """The fraction done (0 to 1), the values reported with it, and when."""

    fraction: float | None
    values: dict[str, Any]
    at: str | None


def progress_of(jobs: Path, job: Job) -> ProgressReply | None:
    """Return what the job's latest attempt last reported; None when it has reported nothing."""
    if not job.attempt:
        return None
    text = logs.tail(jobs, (str(job.id), str(job.attempt), "progress.jsonl"), TAIL)
    for line in reversed(text.splitlines()):
        found = _read(line)
        if found is not None:
            return found
    return None


def _read(line: str) -> ProgressReply | None:
    """Read one line; None when it is cut off, or no report."""
    try:
        report = json.loads(line, parse_constant=str)
    except ValueError:
        return None
    if not isinstance(report, dict):
        return None
    values = report.get("values")
    return {
        "fraction": _number(report.get("fraction"), 0.0, 1.0),
        "values": values if isinstance(values, dict) else {},
        "at": iso(_number(report.get("t"), 0.0, 1e11)),
    }


def _number(value: object, least: float, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return min(max(float(value), least), most)
