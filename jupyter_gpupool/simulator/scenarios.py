"""Workloads that are made, not read: a site of fifty developers under three policies, and random arrivals.

Owns: the built-in scenarios, and drawing jobs from a trace. Never: a clock; every draw comes from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from jupyter_gpupool.scheduler.model import Mib, Seconds
from jupyter_gpupool.simulator.workload import Task, Workload, WorkloadError, ordered

HOUR, DAY, WEEK = 3600, 86400, 7 * 86400
MONDAY_9 = int(datetime(2026, 11, 30, 9, tzinfo=UTC).timestamp())
SITE = "4x8x32GiB"
MORE_JOBS_THAN_FIT = 480
_LENGTH = 12 * HOUR


@dataclass(frozen=True)
class Scenario:
    """A workload with the pool and the policy that it is about."""

    what: str
    policy: str
    workload: Workload
    pool: str = SITE
    horizon: Seconds = WEEK


def _sessions(count: int, *, gpus: int = 0, mib: Mib = 0) -> Iterator[Task]:
    """Yield everybody's session of each working day, 09:00 to 21:00; time begins on a Monday at 09:00."""
    for day in range(5):
        for number in range(count):
            user = f"developer{number + 1}"
            yield Task(day * DAY, _LENGTH, _LENGTH, gpus, mib, user=user, kind="session")


def _backlog(window: str | None) -> Iterator[Task]:
    """Yield more one-card jobs of twelve hours than any policy could finish in a week."""
    for number in range(MORE_JOBS_THAN_FIT):
        user = f"researcher{number % 10 + 1}"
        yield Task(0, _LENGTH, _LENGTH, 1, user=user, resumable=True, window=window)


def _site(name: str, sessions: Iterator[Task], window: str | None) -> Workload:
    return Workload(name, ordered([*sessions, *_backlog(window)]), MONDAY_9)


def _typical() -> Iterator[Task]:
    """Yield one-card jobs whose durations are those of a public trace, fifty of 57,682 (docs/simulate.md)."""
    for seconds in _DURATIONS:
        yield Task(0, seconds, seconds, 1, resumable=True)


_DURATIONS = (
    *(
        660,
        840,
        990,
        1040,
        1180,
        1430,
        1600,
        1800,
        2100,
        2370,
        2690,
        3070,
        3860,
        4700,
        5160,
        5730,
        6340,
        6930,
    ),
    *(
        7420,
        7520,
        7610,
        7730,
        8000,
        8550,
        9500,
        10490,
        10710,
        10970,
        11450,
        11700,
        11740,
        11790,
        11930,
        12740,
    ),
    *(
        13270,
        13660,
        13820,
        14360,
        14900,
        16300,
        16510,
        18670,
        18940,
        19860,
        23620,
        25680,
        27450,
        29440,
        45880,
    ),
    90100,
)
_GROUPS = "groups: {everyone: {quota: {gpus: 32}}}\ndefault_group: everyone\n"
_NIGHT = 'calendars: {night: {weekly: ["Mon-Sun 21:00-09:00", "Sat-Sun 00:00-24:00"]}}\n'
_SLICES = "slices: [{share: 1/8, cpus: 2, memory: 8GiB}, {gpus: 1}], cpu_overcommit: 2.0"
_BEFORE = f"""\
calendars: {{working-night: {{weekly: ["Mon-Fri 21:00-09:00"]}}}}
partitions: {{all: {{gpus: ["*:*"], for: [session, job]}}}}
{_GROUPS}"""
_LENT = """\
partitions:
  development: {{gpus: ["node1:*", "node2:*"], for: [session], {slices},
    lend: {{to: training, during: night, {lend}settle: 0s}}}}
  training: {{gpus: ["node3:*", "node4:*"], for: [job]}}
"""

SCENARIOS = {
    "site-before": Scenario(
        "every card held by day, one job a card and working night, weekends unused",
        _BEFORE,
        _site("site-before", _sessions(32, gpus=1), "working-night"),
    ),
    "site-split": Scenario(
        "16 cards fixed for development, lent at night and at weekends",
        _NIGHT + _LENT.format(slices=_SLICES, lend="") + _GROUPS,
        _site("site-split", _sessions(50, mib=4096), None),
    ),
    "site-pooled": Scenario(
        "the same with sessions packed and idle cards lent by day, with headroom for four more",
        _NIGHT + _LENT.format(slices=_SLICES, lend="by_day: true, headroom: 4, ") + _GROUPS,
        _site("site-pooled", _sessions(50, mib=4096), None),
    ),
}


TYPICAL = Workload("jobs of a public trace", tuple(_typical()))


def poisson(workload: Workload, trace: Workload, horizon: Seconds, seed: int) -> Workload:
    """Put random arrivals in the place of a workload's jobs.

    Durations and numbers of GPUs are drawn together from `trace`; owners, groups and windows from the jobs
    replaced. On average as much GPU time is asked for as before, evenly over the horizon.

    Raises
    ------
    WorkloadError
        One of the two has no job that uses a GPU.
    """
    jobs = [task for task in workload.tasks if task.kind == "job" and task.gpus]
    drawn = [task for task in trace.tasks if task.kind == "job" and task.gpus]
    if not jobs or not drawn:
        raise WorkloadError(f"{(trace if jobs else workload).name} has no job that uses whole GPUs.")
    draw = random.Random(seed)
    asked = sum(task.gpus * task.duration for task in jobs)
    each = sum(task.gpus * task.duration for task in drawn) / len(drawn)
    rate = asked / each / horizon
    tasks = [task for task in workload.tasks if task.kind == "session"]
    at = draw.expovariate(rate)
    while at < horizon:
        like, size = draw.choice(jobs), draw.choice(drawn)
        tasks.append(replace(like, submit=int(at), duration=size.duration, limit=size.limit, gpus=size.gpus))
        at += draw.expovariate(rate)
    return replace(workload, name=f"{workload.name} with jobs of {trace.name}", tasks=ordered(tasks))
