"""How far running jobs say they are.

Owns: the latest report of a job, as far as it is sense: the last line of its ``progress.jsonl``, or what it
has sent, which is kept here; with its newest checkpoint, the mark of how far it came. What a job says of
itself decides whether it goes on after stops for others, nothing else. Never: an outcome.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from jupyter_gpupool.client.files import write_whole
from jupyter_gpupool.engines.base import EngineError, JobFiles
from jupyter_gpupool.ledger.records import Job
from jupyter_gpupool.ledger.stops import Mark
from jupyter_gpupool.service import logs
from jupyter_gpupool.service.moments import iso

TAIL = 8192
CHECKPOINT = "checkpoint"


class ProgressReply(TypedDict):
    """The fraction done (0 to 1), the values reported with it, and when."""

    fraction: float | None
    values: dict[str, Any]
    at: str | None


class Progress:
    """What jobs have reported.

    Parameters
    ----------
    sent
        The folder of what jobs have sent, one file each; made when the first report comes.
    files
        Where jobs write their own.
    """

    def __init__(self, sent: Path, files: JobFiles):
        self._sent = sent
        self._files = files
        self._last: dict[int, tuple[int, ProgressReply | None]] = {}

    def of(self, job: Job) -> ProgressReply | None:
        """Return what the job's latest attempt last reported; None when it has reported nothing.

        What an attempt said that is over is asked for once.
        """
        if not job.attempt:
            return None
        attempt, last = self._last.get(job.id, (0, None))
        if attempt == job.attempt:
            return last
        sent = self._last_sent(job)
        try:
            written = self._last_written(job)
        except EngineError:
            return sent
        found = [report for report in (sent, written) if report]
        last = max(found, key=lambda report: report["at"] or "", default=None)
        if not job.state.live:
            self._last[job.id] = (job.attempt, last)
        return last

    def saved(self, job: Job) -> float | None:
        """Return when the job's newest checkpoint file was written; None without one.

        Raises
        ------
        EngineError
            The engine cannot be asked now.
        """
        return self._files.newest(job.id, CHECKPOINT)

    def mark(self, job: Job) -> Mark | None:
        """Return how far the job is; None when nobody can say."""
        try:
            saved = self.saved(job)
        except EngineError:
            return None
        said = self.of(job)
        fraction = said["fraction"] if said else None
        return Mark(saved_ms=int((saved or 0) * 1000), progress_ppm=int((fraction or 0) * 1_000_000))

    def send(self, job: Job, fraction: float | None, values: dict[str, Any], now: float) -> None:
        """Keep what the job's present attempt says at `now` (Unix seconds).

        Raises
        ------
        OSError
            It cannot be written down.
        """
        self._sent.mkdir(mode=0o700, exist_ok=True)
        report = {"attempt": job.attempt, "t": now, "fraction": fraction, "values": values}
        write_whole(self._file(job.id), json.dumps(report))

    def forget(self, job: int) -> None:
        """Drop what a job has said."""
        self._last.pop(job, None)
        self._file(job).unlink(missing_ok=True)

    def _file(self, job: int) -> Path:
        return self._sent / f"{job}.json"

    def _last_sent(self, job: Job) -> ProgressReply | None:
        try:
            line = self._file(job.id).read_bytes()
        except OSError:
            return None
        report = _object(line)
        return _reply(report) if report and report.get("attempt") == job.attempt else None

    def _last_written(self, job: Job) -> ProgressReply | None:
        text = logs.tail(self._files, job.id, str(job.attempt), "progress.jsonl", size=TAIL)
        reports = (_object(line) for line in reversed(text.splitlines()))
        return next((_reply(report) for report in reports if report is not None), None)


def _object(line: str | bytes) -> dict[str, Any] | None:
    """Read one report; None when it is cut off, or none."""
    try:
        report = json.loads(line, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


def _reply(report: dict[str, Any]) -> ProgressReply:
    values = report.get("values")
    return {
        "fraction": _number(report.get("fraction"), 0.0, 1.0),
        "values": values if isinstance(values, dict) else {},
        "at": iso(_number(report.get("t"), 0.0, 1e11)),
    }


def _number(value: object, least: float, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -math.inf < value < math.inf:
        return None
    return float(min(max(value, least), most))  # an integer may be larger than any float
