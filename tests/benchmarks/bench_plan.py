"""How long the scheduler takes on a large pool: `fill` after one end, and a whole `plan`.

10,000 queued jobs of 1,000 groups on 1,024 busy GPUs, once with quotas that leave the cards as the only
bound (8 cards a group) and once with quotas that bind (1 card a group: larger jobs can never run).
`run()` returns the numbers and prints them.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace

from jupyter_gpupool.scheduler.model import (
    Gpu,
    GpuShare,
    Group,
    Lease,
    Node,
    Partition,
    Placement,
    PriorityClass,
    Quota,
    Request,
    Snapshot,
    UserLimits,
    Work,
)
from jupyter_gpupool.scheduler.plan import fill, plan
from jupyter_gpupool.service.serving import calm_collector

NOW = 1_800_000_000
CARD_MIB = 32 * 1024
SIZES = (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 8)
HOUR = 3600


def big_snapshot(
    jobs: int = 10_000, groups: int = 1_000, nodes: int = 128, cards_per_group: int = 8, seed: int = 7
) -> Snapshot:
    """Make a pool of `nodes` × 8 cards, all busy with jobs of mixed sizes, and a long queue behind them."""
    draw = random.Random(seed)
    gpus = [
        Gpu(f"GPU-{node:03}-{index}", f"node{node:03}", index, "H100", CARD_MIB, "training", f"{node}")
        for node in range(nodes)
        for index in range(8)
    ]
    names = [f"group{number:04}" for number in range(groups)]
    quota = {"gpu_milli": 1000 * cards_per_group, "cpus_milli": 8000 * cards_per_group}
    limits = UserLimits(running_jobs=8)
    return Snapshot(
        nodes=tuple(Node(f"node{node:03}", 64_000, 512 * 1024) for node in range(nodes)),
        gpus=tuple(gpus),
        partitions={"training": Partition("training", frozenset({"job"}))},
        groups={name: Group(name, "pool", Quota(quota), user=limits) for name in names},
        users={},
        priorities={
            "low": PriorityClass("low", -100, 500),
            "normal": PriorityClass("normal", 0),
            "high": PriorityClass("high", 100, 2000, running_jobs=1),
        },
        windows={},
        waiting=tuple(_job(number, names, draw) for number in range(jobs)),
        leases=tuple(_leases(gpus, names, draw)),
    )


def _job(number: int, names: list[str], draw: random.Random) -> Work:
    group = draw.choice(names)
    cards = draw.choice(SIZES)
    mib = draw.randrange(1, 32) * 1024 if cards == 1 and draw.random() < 0.2 else 0
    request = Request(
        gpus=0 if mib else cards, gpu_mib=mib, cpus_milli=6000 * cards, memory_mib=cards * 50 * 1024
    )
    return Work(
        id=100_000 + number,
        kind="job",
        user=f"{group}-{draw.randrange(4)}",
        group=group,
        priority=draw.choice(("low", "normal", "normal", "normal", "high")),
        submitted=NOW - 100_000 + 5 * number,
        limit=draw.randrange(10, 48 * 60) * 60,
        request=request,
    )


def _leases(gpus: list[Gpu], names: list[str], draw: random.Random) -> list[Lease]:
    leases: list[Lease] = []
    position = 0
    while position < len(gpus):
        room = 8 - gpus[position].index
        cards = min(draw.choice(SIZES), room)
        taken = gpus[position : position + cards]
        position += cards
        group = draw.choice(names)
        request = Request(gpus=cards, cpus_milli=6000 * cards, memory_mib=cards * 50 * 1024)
        shares = tuple(GpuShare(gpu.uuid, CARD_MIB) for gpu in taken)
        placement = Placement((taken[0].node,), shares, 1000 * cards, "training")
        number = len(leases) + 1
        start, end = NOW - draw.randrange(1, 24 * HOUR), NOW + draw.randrange(60, 24 * HOUR)
        user = f"{group}-{draw.randrange(4)}"
        leases.append(
            Lease(number, number, "job", user, group, "normal", request, placement, start, end, True)
        )
    return leases


def after_one_end(snapshot: Snapshot, number: int) -> Snapshot:
    """Let one lease end before its time."""
    return replace(snapshot, leases=snapshot.leases[:number] + snapshot.leases[number + 1 :])


def run(fills: int = 40, plans: int = 3) -> dict[str, float]:
    """Measure; times are in milliseconds.

    The garbage collector is set as the service sets it once it has loaded its jobs.
    """
    results: dict[str, float] = {}
    for label, quota in (("quota 8 cards a group", 8), ("quota 1 card a group", 1)):
        snapshot = big_snapshot(cards_per_group=quota)
        calm_collector()
        whole = []
        for _ in range(plans):
            begun = time.perf_counter()
            first = plan(snapshot, NOW)
            whole.append(1000 * (time.perf_counter() - begun))
        settled = replace(snapshot, promises=first.promises)
        draw = random.Random(3)
        quick = []
        started = 0
        for _ in range(fills):
            freed = after_one_end(settled, draw.randrange(len(snapshot.leases)))
            begun = time.perf_counter()
            started += len(fill(freed, NOW).starts)
            quick.append(1000 * (time.perf_counter() - begun))
        estimated = sum(verdict.expected_start is not None for verdict in first.verdicts.values())
        results[f"plan, {label}: median ms"] = statistics.median(whole)
        results[f"fill, {label}: median ms"] = statistics.median(quick)
        results[f"fill, {label}: p95 ms"] = statistics.quantiles(quick, n=20)[-1]
        results[f"fill, {label}: jobs started a pass"] = started / fills
        results[f"plan, {label}: jobs with an expected start"] = estimated
    for name, value in results.items():
        print(f"{name:60} {value:10.2f}")
    return results


if __name__ == "__main__":
    run()
