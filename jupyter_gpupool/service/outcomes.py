"""What the end of a job means, and why it came.

Owns: the mapping from how a process tree ended to the job's state, and the diagnosis that `why ID`
shows afterwards. Pure functions of the engine's report and the log's text. What a job's own files say
explains an outcome; it never decides one. Never: a file, a clock.
"""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpupool.engines.base import Ended
from jupyter_gpupool.ledger.records import JobState

TRACEBACK_LINES = 12
LINE_LENGTH = 500
FINISHED = "Finished with exit code 0."
IN_ITS_GRACE = " It had been asked to stop; work that is to go on later leaves with another code."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    `state` is completed, failed, cancelled or timed_out; None = back into the queue, because of `sentence`.
    """

    state: JobState | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a job failed.

    Attributes
    ----------
    kind
        A name for programs: ``gpu_out_of_memory``, ``host_out_of_memory``, ``disk_full``, …
    summary
        One sentence.
    hint
        What to do; empty when nothing better than reading the log is known.
    lines
        The last lines of the traceback, or of the log.
    """

    kind: str
    summary: str
    hint: str = ""
    lines: list[str] = field(default_factory=list)
    peak_mib: int | None = None
    limit_mib: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "kind": self.kind,
            "summary": self.summary,
            "hint": self.hint or None,
            "lines": self.lines,
            "peak_mib": self.peak_mib,
            "limit_mib": self.limit_mib,
        }


def outcome_of(ended: Ended, limit_text: str) -> Outcome:
    """Map the end of a process tree to the job's.

    Work that finishes by itself with exit code 0 is completed, also inside its grace.

    Parameters
    ----------
    ended
        The engine's report.
    limit_text
        The job's time limit as people write it.
    """
    match ended.cause:
        case _ if ended.exit_code == 0 and ended.cause != "start":
            return Outcome(JobState.COMPLETED, FINISHED + (IN_ITS_GRACE if ended.cause == "stop" else ""))
        case "cancel":
            return Outcome(JobState.CANCELLED, "Cancelled while it ran.")
        case "limit":
            return Outcome(JobState.TIMED_OUT, f"Stopped at its time limit of {limit_text}.")
        case "stop":
            return Outcome(None, ended.message or "Stopped to run again later.")
        case "reboot":
            return Outcome(None, ended.message or "The machine was restarted while the job ran.")
        case "lost":
            return Outcome(JobState.FAILED, ended.message or "The job's runner was killed.")
        case "start":
            return Outcome(JobState.FAILED, ended.message or "The job could not be started.")
    if ended.signal is not None:
        return Outcome(JobState.FAILED, f"Ended by {_signal_name(ended.signal)}.")
    return Outcome(JobState.FAILED, f"Finished with exit code {ended.exit_code}.")


def diagnose(ended: Ended, log_tail: str, *, memory_mib: int, gpu_mib: int | None) -> Diagnosis:
    """Say why a job failed.

    Parameters
    ----------
    ended
        The engine's report.
    log_tail
        The end of the job's log.
    memory_mib, gpu_mib
        The host memory and the memory of its card(s) that the job had.
    """
    lines = traceback_tail(log_tail)
    return (
        _out_of_memory(ended, log_tail, lines, memory_mib, gpu_mib)
        or _by_the_engine(ended, lines)
        or _by_the_log(log_tail, lines)
        or _by_the_end(ended, lines)
    )


def _out_of_memory(
    ended: Ended, log_tail: str, lines: list[str], memory_mib: int, gpu_mib: int | None
) -> Diagnosis | None:
    if ended.oom or _HOST_OOM.search(_last(lines)):
        peak = f" (peak {ended.peak_mib} MiB)" if ended.peak_mib is not None else ""
        return Diagnosis(
            "host_out_of_memory",
            f"The job needed more host memory than its {memory_mib} MiB{peak}.",
            "Ask for more with --mem.",
            lines,
            ended.peak_mib,
            memory_mib,
        )
    if _GPU_OOM.search(log_tail):
        tried = _TRIED.search(log_tail)
        wanted = f" when it tried to allocate {tried.group(1)}" if tried else ""
        had = f" of {gpu_mib} MiB" if gpu_mib else ""
        return Diagnosis(
            "gpu_out_of_memory",
            f"The job ran out of GPU memory{had}{wanted}.",
            "Ask for more with --gpu-memory or --gpus, or use a smaller batch.",
            lines,
            limit_mib=gpu_mib,
        )
    return None


def _by_the_engine(ended: Ended, lines: list[str]) -> Diagnosis | None:
    if ended.cause == "lost":
        return Diagnosis("runner_killed", ended.message or "The job's runner was killed.", "", lines)
    if ended.cause == "start":
        return Diagnosis("not_started", ended.message or "The job could not be started.", "", lines)
    return None


def _by_the_log(log_tail: str, lines: list[str]) -> Diagnosis | None:
    last = _last(lines)
    if "No space left on device" in log_tail:
        return Diagnosis("disk_full", "A disk that the job wrote to is full.", _FULL_HINT, lines)
    if last == "The notebook's kernel died.":
        return Diagnosis("kernel_died", last, "The notebook as far as it came is among the outputs.", lines)
    if _UNSENT.match(last):
        return Diagnosis("no_result", last, "", lines)
    if missing := _MISSING.search(last):
        module = missing.group(1)
        return Diagnosis(
            "missing_module",
            f"The job's Python has no module {module!r}.",
            "Install it there, or choose another interpreter with --kernel or --python.",
            lines,
        )
    if xid := _XID.search(log_tail):
        return Diagnosis(
            "gpu_fault", f"The GPU reported a fault: {xid.group(0)}.", "Tell the administrator.", lines
        )
    return None


def _by_the_end(ended: Ended, lines: list[str]) -> Diagnosis:
    last = _last(lines)
    if ended.signal is not None:
        return Diagnosis(
            "signal", f"The job was ended by {_signal_name(ended.signal)}.", _blame(ended.signal), lines
        )
    if _EXCEPTION.match(last):
        return Diagnosis("exception", last.strip(), "", lines)
    if ended.message:  # the log could not tell
        return Diagnosis("disk_full", ended.message, _FULL_HINT, lines)
    return Diagnosis("exit_code", f"The program finished with exit code {ended.exit_code}.", "", lines)


_GPU_OOM = re.compile(
    r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED"
    r"|cudaErrorMemoryAllocation|OutOfMemoryError: Out of memory allocating"
)
_HOST_OOM = re.compile(r"(?<!OutOf)MemoryError\b")
_TRIED = re.compile(r"[Tt]r(?:ied|ying) to allocate ([0-9.]+ ?[KMG]iB)")
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?")
_XID = re.compile(r"Xid(?: \([^)]*\))?: ?\d+")
_EXCEPTION = re.compile(r"\s*[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b")
_FULL_HINT = "Free some space, then submit it again."
_UNSENT = re.compile(r"The (?:cell|function) ran, but ")
_TRACEBACK = "Traceback (most recent call last)"
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def traceback_tail(log: str) -> list[str]:
    """Return the last lines of the log's last traceback, or of the log where it has none."""
    lines = [line.rstrip()[:LINE_LENGTH] for line in _ANSI.sub("", log).splitlines() if line.strip()]
    start = max((index for index, line in enumerate(lines) if _TRACEBACK in line), default=None)
    if start is None:
        return lines[-TRACEBACK_LINES:]
    end = next(
        (i for i in range(start + 1, len(lines)) if _EXCEPTION.match(lines[i]) and lines[i][0] != " "), None
    )
    found = lines[start : len(lines) if end is None else end + 1]
    return found[-TRACEBACK_LINES:]


def _last(lines: list[str]) -> str:
    return lines[-1] if lines else ""


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signals.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _blame(number: int) -> str:
    if number == signals.SIGKILL:
        return (
            "Somebody killed it, or the machine ran out of memory: see its log, then ask for more with --mem."
        )
    if number in (signals.SIGSEGV, signals.SIGABRT, signals.SIGBUS, signals.SIGILL):
        return "A compiled library crashed: see its log."
    return ""
