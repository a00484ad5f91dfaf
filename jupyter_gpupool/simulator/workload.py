"""What people ask for, and when: the rows that a simulation plays.

Owns: `Task`, reading it from CSV (this tool's own columns, or those of two public kinds of trace), and
writing it.
Never: a policy; what a size or a group means there is decided when it is played (`entry`).

Own columns: ``submit, duration`` (required), ``limit, gpus, gpu_memory, group, user, priority, kind,
resumable, window``. Times are seconds, or written as in a policy (``12h``); ``submit`` counts from the start,
or is a date and time.
A job works for `duration` once it runs. A session is over `duration` after it was asked for, however long
it waited: people go home.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args
from zoneinfo import ZoneInfo

from jupyter_gpupool.client.spreadsheet import cell, read_cell
from jupyter_gpupool.policy.units import UnitError, parse_count, parse_duration, parse_size
from jupyter_gpupool.scheduler.model import Kind, Mib, Seconds

EVERYONE = "everyone"
YES, NO = ("yes", "true", "1"), ("no", "false", "0", "")

Row = Mapping[str, str]


class WorkloadError(ValueError):
    """A workload that cannot be played; the text says which line, what is wrong and what to write."""


@dataclass(frozen=True, slots=True)
class Task:
    """One job or session to come.

    `submit` is in seconds after the start, `duration` and `limit` are seconds. Neither `gpus` nor `mib`:
    CPU only.
    """

    submit: Seconds
    duration: Seconds
    limit: Seconds
    gpus: int = 0
    mib: Mib = 0
    group: str = EVERYONE
    user: str = "user"
    priority: str | None = None
    kind: Kind = "job"
    resumable: bool = False
    window: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Tasks in order of time, sessions first; `start` is when they begin (UTC), where the source tells."""

    name: str
    tasks: tuple[Task, ...]
    start: Seconds | None = None


def ordered(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Sort by submit time; at one time, sessions come first."""
    return tuple(sorted(tasks, key=lambda task: (task.submit, task.kind != "session")))


def read_workload(path: Path, zone: ZoneInfo) -> Workload:
    """Read a CSV file; its columns tell which kind it is.

    Parameters
    ----------
    zone
        In which wall-clock times of a trace are read.

    Raises
    ------
    WorkloadError
        The file cannot be read, or a line cannot be understood.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            rows.fieldnames = [column.strip().lower() for column in rows.fieldnames or ()]
            for needed, read in _KINDS:
                if needed <= set(rows.fieldnames):
                    return read(path.name, rows, zone)
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error):
        raise WorkloadError(f"{path.name} is not a text file with rows and commas (CSV, in UTF-8).") from None
    missing = " and ".join(column for column in _NEEDED if column not in rows.fieldnames)
    raise WorkloadError(
        f"{path.name} has no column {missing}. Its first line should name submit and duration; "
        f"further columns are {', '.join(_MORE)}."
    )


def with_limits(workload: Workload, most: float, seed: int) -> Workload:
    """Give every task a limit of its duration times a factor drawn from [1, `most`], by `seed`."""
    draw = random.Random(seed)
    drawn = (replace(task, limit=math.ceil(task.duration * draw.uniform(1, most))) for task in workload.tasks)
    return replace(workload, tasks=tuple(drawn))


def between(workload: Workload, first: Seconds, last: Seconds) -> Workload:
    """Keep what is submitted in [first, last) after the start; time begins at `first`."""
    kept = (replace(t, submit=t.submit - first) for t in workload.tasks if first <= t.submit < last)
    start = None if workload.start is None else workload.start + first
    return replace(workload, tasks=tuple(kept), start=start)


def write_workload(path: Path, workload: Workload) -> None:
    """Write a workload in this tool's own columns; with dates, where it has them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(_WRITTEN)
        for task in workload.tasks:
            at: object = task.submit
            if workload.start is not None:
                at = datetime.fromtimestamp(workload.start + task.submit, UTC).isoformat()
            memory, resumable = f"{task.mib}MiB" if task.mib else "", "yes" if task.resumable else "no"
            what = (task.gpus if not task.mib else "", memory, task.group, task.user, task.priority)
            row = (at, task.duration, task.limit, *what, task.kind, resumable, task.window)
            rows.writerow(map(cell, row))


def _read_own(name: str, rows: csv.DictReader[str], zone: ZoneInfo) -> Workload:
    if unknown := sorted(set(rows.fieldnames or ()) - {*_WRITTEN}):
        raise WorkloadError(f"{name} has a column {unknown[0]!r}; known are {', '.join(_WRITTEN)}.")
    dated = set()

    def task_of(row: Row) -> Task:
        at = row["submit"]
        dated.add("-" in at.lstrip("-"))
        if len(dated) > 1:
            raise UnitError(f'submit "{at}" is of another kind than those above.', "Write dates, or seconds.")
        return _own_task(row, _time(at, zone) if True in dated else _seconds(at, "submit", zero=True))

    tasks = ordered(_each(name, rows, task_of))
    return _from_midnight(name, tasks, zone) if True in dated else Workload(name, tasks)


def _own_task(row: Row, submit: Seconds) -> Task:
    kind: Kind = row.get("kind") or "job"  # type: ignore[assignment]
    if kind not in get_args(Kind):
        raise UnitError(f'kind "{kind}" is neither job nor session.', "Write job or session.")
    if row.get("gpus") and row.get("gpu_memory"):
        raise UnitError("gpus and gpu_memory exclude each other.", "Fill in one of them.")
    mib = parse_size(row["gpu_memory"], what="gpu_memory") if row.get("gpu_memory") else 0
    gpus = parse_count(row["gpus"], what="gpus") if row.get("gpus") else 0 if mib else 1
    duration = _seconds(row["duration"], "duration")
    return Task(
        submit=submit,
        duration=duration,
        limit=_seconds(row["limit"], "limit") if row.get("limit") else duration,
        gpus=gpus,
        mib=mib,
        group=row.get("group") or EVERYONE,
        user=row.get("user") or row.get("group") or "user",
        priority=row.get("priority") or None,
        kind=kind,
        resumable=_yes_or_no(row.get("resumable") or ""),
        window=row.get("window") or None,
    )


def _read_itp(name: str, rows: csv.DictReader[str], zone: ZoneInfo) -> Workload:
    tasks = ordered(_each(name, rows, _itp_task))
    first = tasks[0].submit if tasks else 0
    return Workload(name, tuple(replace(task, submit=task.submit - first) for task in tasks))


def _itp_task(row: Row) -> Task:
    duration = _seconds(row["duration"], "duration")
    return Task(
        submit=_seconds(row["submission_time"], "submission_time", zero=True),
        duration=duration,
        limit=duration,
        gpus=parse_count(row["num_gpu"], what="num_gpu"),
        resumable=True,
    )


def _read_philly(name: str, rows: csv.DictReader[str], zone: ZoneInfo) -> Workload:
    def task_of(row: Row) -> Task:
        at = _time(row["timestamp"], zone)
        duration = _seconds(row["duration"], "duration")
        gpus, group = parse_count(row["num_gpus"], what="num_gpus"), row["cluster"]
        return Task(at, duration, duration, gpus, group=group, user=group, resumable=True)

    return _from_midnight(name, ordered(_each(name, rows, task_of)), zone)


def _from_midnight(name: str, tasks: tuple[Task, ...], zone: ZoneInfo) -> Workload:
    """Return dated tasks as a workload that begins with its first day."""
    if not tasks:
        return Workload(name, ())
    first = datetime.fromtimestamp(tasks[0].submit, zone)
    start = int(first.replace(hour=0, minute=0, second=0).timestamp())
    return Workload(name, tuple(replace(task, submit=task.submit - start) for task in tasks), start)


def _each(name: str, rows: csv.DictReader[str], task_of: Callable[[Row], Task]) -> Iterable[Task]:
    for row in rows:
        try:
            if None in row:
                raise UnitError("there are more values than columns.", "Put text with a comma in quotes.")
            yield task_of({column: read_cell((value or "").strip()) for column, value in row.items()})
        except UnitError as error:
            raise WorkloadError(f"{name}, line {rows.line_num}: {error}") from None


def _time(text: str, zone: ZoneInfo) -> Seconds:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UnitError(f'"{text}" is not a time.', "Write it as 2017-10-09 07:01:55.") from None
    return int((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp())


def _seconds(text: str, what: str, *, zero: bool = False) -> Seconds:
    """Read seconds, fractions rounded up, or a duration with its unit."""
    try:
        number = float(text)
    except ValueError:
        return parse_duration(text, what=what, zero=zero)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise UnitError(f'{what} "{text}" is no time that could pass.', "Write seconds, or 90m, 12h.")
    return math.ceil(number)


def _yes_or_no(text: str) -> bool:
    if text.lower() in YES:
        return True
    if text.lower() in NO:
        return False
    raise UnitError(f'resumable "{text}" is neither yes nor no.', "Write yes or no.")


_NEEDED = ("submit", "duration")
_MORE = ("limit", "gpus", "gpu_memory", "group", "user", "priority", "kind", "resumable", "window")
_WRITTEN = (*_NEEDED, *_MORE)
_KINDS: tuple[tuple[set[str], Callable[[str, csv.DictReader[str], ZoneInfo], Workload]], ...] = (
    (set(_NEEDED), _read_own),
    ({"submission_time", "duration", "num_gpu"}, _read_itp),
    ({"timestamp", "duration", "num_gpus", "cluster"}, _read_philly),
)
