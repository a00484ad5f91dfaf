"""How fast the simulator plays: starts a second behind a long queue, and 100,000 jobs to their end.

`run()` returns the figures and prints them. Workloads are drawn from a seed; a trace is played too where its
path is given: `python -m tests.benchmarks.bench_simulator TRACE.csv`. Seconds are of the processor.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.scheduler.model import Plan, Seconds, Snapshot
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.simulator.engine import Discipline, Setting
from jupyter_gpupool.simulator.play import play
from jupyter_gpupool.simulator.quotas import policy_for
from jupyter_gpupool.simulator.workload import Task, Workload, ordered, read_workload

START = 1_800_000_000
MINUTE, HOUR, DAY = 60, 3600, 86400
SIZES = (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 8)
TRACE_POOL = "80x8x32GiB"


class Watch:
    """Counts the processor time that the scheduler takes, all passes together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def discipline(self) -> Discipline:
        """Return the rules of the policy, on the watch."""
        return Discipline("policy", self.fill, self.plan)

    def fill(self, snapshot: Snapshot, now: Seconds, standing: Standing) -> Plan:
        begun = time.process_time()
        found = fill(snapshot, now, standing)
        self.seconds += time.process_time() - begun
        return found

    def plan(self, snapshot: Snapshot, now: Seconds) -> Plan:
        begun = time.process_time()
        found = plan(snapshot, now)
        self.seconds += time.process_time() - begun
        return found


def run(trace: Path | None = None, *, jobs: int = 100_000, queue: int = 10_000) -> dict[str, float]:
    """Measure; without a trace only what is drawn is played."""
    results: dict[str, float] = {}
    for label, grain in (("ends on the hour", HOUR), ("ends at any second", 1)):
        results |= _starts(label, queue, grain)
    results |= _played(f"{jobs:,} jobs drawn from a seed", Workload("drawn", ordered(_arrivals(jobs))))
    if trace is None:
        print("No trace was given: only what is drawn is played.")
    else:
        results |= _played(
            f"{jobs:,} jobs of {trace.name}", _repeated(read_workload(trace, ZoneInfo("UTC")), jobs)
        )
    for name, value in results.items():
        print(f"{name:70} {value:10.2f}")
    return results


def _starts(label: str, queue: int, grain: Seconds) -> dict[str, float]:
    """Play half a day of a pool of 1,024 cards, with a queue that is as long in the beginning."""
    groups = max(1, queue // 10)
    workload = Workload("queue", ordered(_queue(queue, groups, grain)))
    watch = Watch()
    setting = Setting(
        SimulatedPool.parse("128x8x32GiB"),
        load_policy(_policy(groups)),
        START,
        horizon=DAY // 2,
        plan_every=DAY,
        discipline=watch.discipline,
    )
    begun = time.process_time()
    result = play(label, setting, workload)
    spent = time.process_time() - begun
    starts = sum(event["event"] == "start" for event in result.events)
    what = f"simulated starts, {queue:,} queued, {label}"
    return {
        f"{what}: jobs started": starts,
        f"{what}: a second": starts / spent,
        f"{what}: a second of the scheduler": starts / watch.seconds,
    }


def _played(label: str, workload: Workload) -> dict[str, float]:
    """Play a workload from its first to its last job, with groups owed what their work takes."""
    pool, watch = SimulatedPool.parse(TRACE_POOL), Watch()
    policy = load_policy(policy_for(workload.tasks, pool))
    setting = Setting(pool, policy, workload.start or START, discipline=watch.discipline)
    begun, clock = time.process_time(), time.perf_counter()
    result = play(label, setting, workload)
    return {
        f"{label}: jobs completed": result.figures["jobs_completed"],
        f"{label}: seconds": time.perf_counter() - clock,
        f"{label}: processor seconds": time.process_time() - begun,
        f"{label}: processor seconds of the scheduler": watch.seconds,
    }


def _queue(many: int, groups: int, grain: Seconds) -> Iterator[Task]:
    """Yield a queue of jobs, all of which wait from the beginning."""
    draw = random.Random(5)
    for _ in range(many):
        group = f"group{draw.randrange(groups)}"
        duration = max(grain, draw.randrange(10 * MINUTE, 12 * HOUR) // grain * grain)
        user = f"{group}-{draw.randrange(4)}"
        yield Task(
            0,
            duration,
            duration + draw.choice((0, HOUR)),
            draw.choice(SIZES),
            group=group,
            user=user,
            resumable=draw.random() < 0.5,
        )


def _arrivals(many: int) -> Iterator[Task]:
    """Yield jobs of twelve groups at random times, mostly short and of one card, on 9 of 10 cards."""
    draw = random.Random(11)
    drawn = [
        (int(min(14 * DAY, draw.lognormvariate(7.5, 1.8))) + 30, draw.choice(SIZES)) for _ in range(many)
    ]
    asked = sum(duration * gpus for duration, gpus in drawn)
    rate = many / (asked / (0.9 * 640))
    at = 0.0
    for duration, gpus in drawn:
        at += draw.expovariate(rate)
        group = f"group{min(11, int(draw.expovariate(0.3)))}"
        limit = int(duration * draw.uniform(1, 5))
        yield Task(
            int(at), duration, limit, gpus, group=group, user=f"{group}-{draw.randrange(9)}", resumable=True
        )


def _repeated(workload: Workload, many: int) -> Workload:
    """Return the first `many` jobs of a workload, which begins anew where it ends."""
    tasks = list(workload.tasks)
    length = tasks[-1].submit + 1
    while len(tasks) < many:
        again = len(tasks) // len(workload.tasks)
        tasks += [replace(task, submit=task.submit + again * length) for task in workload.tasks]
    return replace(workload, tasks=tuple(tasks[:many]))


def _policy(groups: int) -> str:
    rows = "".join(
        f"  group{number}: {{parent: department{number % 40}, quota: {{gpus: 1}}, user: {{running_jobs: 8}}"
        + (", limit: {gpus: 12}" if number % 3 == 0 else "")
        + (", lend: {gpus: 0.5}" if number % 10 == 0 else "")
        + (", budget: {gpu_hours: 5000, period: month}" if number % 10 == 5 else "")
        + "}\n"
        for number in range(groups)
    )
    departments = "".join(f"  department{number}: {{quota: {{gpus: 0}}}}\n" for number in range(40))
    return (
        'partitions: {all: {gpus: ["*:*"], for: [session, job]}}\n'
        "defaults: {cpus_per_gpu: 6, memory_per_gpu: 50GiB}\n"
        f"groups:\n{departments}{rows}"
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
