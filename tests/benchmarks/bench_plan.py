"""How long the scheduler takes on a large pool: `fill` after one end, and a whole `plan`.

10,000 queued jobs of 1,000 groups on 1,024 busy GPUs: with quotas that leave the cards as the only bound
(8 cards a group), with quotas that bind (1 card a group, and jobs that may not borrow), with groups that
borrow (1 card a group, half of the jobs resumable, and every tenth group keeps half of its card for itself),
and with everything switched on; the last also with 1,000 and 100,000 queued jobs.
`run()` returns the numbers and prints them.
"""

from __future__ import annotations

import random
import statistics
import time

from jupyter_gpupool.scheduler.model import Snapshot
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.service.serving import calm_collector
from tests.benchmarks.large_pool import NOW, after_one_end, big_snapshot, carried_out, everything


def run(fills: int = 40, plans: int = 3) -> dict[str, float]:
    """Measure; times are in milliseconds."""
    results: dict[str, float] = {}
    for label, snapshot in (
        ("quota 8 cards a group", big_snapshot(cards_per_group=8)),
        ("quota 1 card a group", big_snapshot(cards_per_group=1)),
        ("groups that borrow", big_snapshot(cards_per_group=1, borrowing=True)),
        ("everything", everything()),
    ):
        results |= measured(label, snapshot, fills, plans)
    results |= measured("everything, 1,000 queued", everything(jobs=1_000), fills, plans)
    results |= measured("everything, 100,000 queued", everything(jobs=100_000), fills // 4, 1)
    for name, value in results.items():
        print(f"{name:60} {value:10.2f}")
    return results


def measured(label: str, snapshot: Snapshot, fills: int, plans: int) -> dict[str, float]:
    """Measure one pool after its first plan was carried out.

    The garbage collector is set as the service sets it once it has loaded its jobs.
    """
    calm_collector()
    settled = carried_out(snapshot, plan(snapshot, NOW))
    whole, quick, started = [], [], 0
    for _ in range(plans):
        begun = time.perf_counter()
        decided = plan(settled, NOW)
        whole.append(1000 * (time.perf_counter() - begun))
    draw = random.Random(3)
    for _ in range(fills):
        freed = after_one_end(settled, draw.randrange(len(settled.leases)))
        begun = time.perf_counter()
        started += len(fill(freed, NOW).starts)
        quick.append(1000 * (time.perf_counter() - begun))
    estimated = sum(verdict.expected_start is not None for verdict in decided.verdicts.values())
    return {
        f"plan, {label}: median ms": statistics.median(whole),
        f"fill, {label}: median ms": statistics.median(quick),
        f"fill, {label}: p95 ms": statistics.quantiles(quick, n=20)[-1],
        f"fill, {label}: jobs started a pass": started / fills,
        f"plan, {label}: jobs with an expected start": estimated,
    }


if __name__ == "__main__":
    run()
