"""How long the scheduler takes on a large pool: `fill` after one end, and a whole `plan`.

Passes are measured as the service makes them: one lease after the other ends, some seconds apart, and what
each pass decides is carried out before the next, which keeps what it can of the last in one `Standing`. Those
who are asked to stop leave after their grace. A first pass, which has nothing to keep, is measured too. Times
are of the processor.

10,000 queued jobs of 1,000 groups on 1,024 busy GPUs: with quotas that leave the cards as the only bound
(8 cards a group), with quotas that bind (1 card a group, and jobs that may not borrow), with groups that
borrow (1 card a group, half of the jobs resumable, and every tenth group keeps half of its card for itself),
and with everything switched on; the last also with 1,000 and 100,000 queued jobs.
`run()` returns the numbers and prints those of each pool as soon as they are there.
"""

from __future__ import annotations

import random
import statistics
import time

from jupyter_gpupool.scheduler.model import Snapshot
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.service.serving import calm_collector
from tests.benchmarks.large_pool import (
    NOW,
    after_one_end,
    big_snapshot,
    carried_out,
    everything,
    without_ended,
)

SETTLING = 15
"""So many passes are not measured: in them those leave whom the first plan has asked to stop."""


def run(fills: int = 40, plans: int = 3) -> dict[str, float]:
    """Measure; times are in milliseconds."""
    results: dict[str, float] = {}
    for label, snapshot, passes, whole in (
        ("everything, 1,000 queued", everything(jobs=1_000), fills, plans),
        ("quota 8 cards a group", big_snapshot(cards_per_group=8), fills, plans),
        ("quota 1 card a group", big_snapshot(cards_per_group=1), fills, plans),
        ("groups that borrow", big_snapshot(cards_per_group=1, borrowing=True), fills, plans),
        ("everything", everything(), fills, plans),
        ("everything, 100,000 queued", everything(jobs=100_000), fills // 4, 1),
    ):
        found = measured(label, snapshot, passes, whole)
        for name, value in found.items():
            print(f"{name:60} {value:10.2f}", flush=True)
        results |= found
    return results


def measured(label: str, snapshot: Snapshot, fills: int, plans: int) -> dict[str, float]:
    """Measure one pool after its first plan was carried out.

    The garbage collector is set as the service sets it once it has loaded its jobs.
    """
    calm_collector()
    now = NOW
    settled = carried_out(snapshot, plan(snapshot, now))
    whole, first = [], []
    for _ in range(plans):
        begun = time.process_time()
        decided = plan(settled, now)
        whole.append(1000 * (time.process_time() - begun))
    for _ in range(plans):
        begun = time.process_time()
        fill(after_one_end(settled, 0), now)
        first.append(1000 * (time.process_time() - begun))
    draw, standing, quick, started = random.Random(3), Standing(), [], 0
    for number in range(SETTLING + fills):
        now += draw.randrange(60) if number < SETTLING else draw.randrange(1, 15)
        there = without_ended(settled, now)
        freed = after_one_end(there, draw.randrange(len(there.leases)))
        begun = time.process_time()
        found = fill(freed, now, standing)
        if number >= SETTLING:
            quick.append(1000 * (time.process_time() - begun))
            started += len(found.starts)
        settled = carried_out(freed, found, now)
    estimated = sum(verdict.expected_start is not None for verdict in decided.verdicts.values())
    return {
        f"plan, {label}: median ms": statistics.median(whole),
        f"first fill, {label}: median ms": statistics.median(first),
        f"fill, {label}: median ms": statistics.median(quick),
        f"fill, {label}: p95 ms": statistics.quantiles(quick, n=20)[-1],
        f"fill, {label}: jobs started a pass": started / fills,
        f"plan, {label}: jobs with an expected start": estimated,
    }


if __name__ == "__main__":
    run()
