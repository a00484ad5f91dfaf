"""A large synthetic pool, as the scheduler sees it: 10,000 jobs of 1,000 groups wait for 1,024 busy cards.

Owns: making it, all from one seed, with quotas alone or with everything switched on, and what it is after a
plan or an end. Never: a measurement.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from jupyter_gpupool.scheduler.model import (
    Budget,
    Gpu,
    GpuShare,
    Group,
    Lease,
    Lend,
    Node,
    Partition,
    Placement,
    Plan,
    PriorityClass,
    Quota,
    Request,
    Reservation,
    Seconds,
    Snapshot,
    Usage,
    UserLimits,
    Work,
)

NOW = 1_800_000_000
CARD_MIB = 32 * 1024
SIZES = (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 8)
HOUR, DAY = 3600, 86400
PER_NODE = 8
SLICE_MIB = CARD_MIB // 8
CLASSES = ("low", "normal", "normal", "normal", "high")


def big_snapshot(
    jobs: int = 10_000,
    groups: int = 1_000,
    nodes: int = 128,
    cards_per_group: int = 8,
    seed: int = 7,
    *,
    borrowing: bool = False,
) -> Snapshot:
    """Make a pool of `nodes` × 8 cards, all busy with jobs of mixed sizes, and a long queue behind them.

    With `borrowing` every other job is resumable, and some groups keep some of what they are owed.
    """
    draw = random.Random(seed)
    gpus = _gpus(nodes)
    names = [f"group{number:04}" for number in range(groups)]
    quota = {"gpu_milli": 1000 * cards_per_group, "cpus_milli": 8000 * cards_per_group}
    limits = UserLimits(running_jobs=8)
    kept = {"gpu_milli": 500 * cards_per_group} if borrowing else None
    waiting = [_job(number, names, draw) for number in range(jobs)]
    leases = _leases(gpus, names, draw)
    if borrowing:
        waiting = [replace(work, resumable=work.id % 2 == 0) for work in waiting]
        leases = [replace(lease, resumable=lease.id % 2 == 0, grace=120) for lease in leases]
    return Snapshot(
        nodes=tuple(Node(f"node{node:03}", 64_000, 512 * 1024) for node in range(nodes)),
        gpus=tuple(gpus),
        partitions={"training": Partition("training", frozenset({"job"}))},
        groups={
            name: Group(name, "pool", Quota(quota, lend=None if number % 10 else kept), user=limits)
            for number, name in enumerate(names)
        },
        users={},
        priorities={
            "low": PriorityClass("low", -100, 500),
            "normal": PriorityClass("normal", 0),
            "high": PriorityClass("high", 100, 2000, running_jobs=1),
        },
        windows={},
        waiting=tuple(waiting),
        leases=tuple(leases),
    )


def everything(jobs: int = 10_000, groups: int = 1_000, nodes: int = 128, seed: int = 7) -> Snapshot:
    """Make the same pool with everything switched on.

    Groups have parents, limits, quotas by type and of what they lend; some have a budget. Of eight nodes one
    lends its cards at night, which it is, and one by day beyond headroom; people have slices there. There are
    arrays, back-off, windows, a class that preempts, past usage, a reservation and a maintenance.
    """
    draw = random.Random(seed)
    plain = big_snapshot(jobs, groups, nodes, cards_per_group=1, seed=seed, borrowing=True)
    partitions = [("night", "day")[node] if node < 2 else "training" for node in range(PER_NODE)]
    gpus = [
        replace(
            gpu,
            partition=partitions[place % PER_NODE],
            model="A100" if place % 4 == 3 else "H100",
        )
        for place, gpu in ((int(gpu.node.removeprefix("node")), gpu) for gpu in plain.gpus)
    ]
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    lent = [lease for lease in plain.leases if _partition_of(lease, by_uuid) != "training"]
    kept = [
        replace(lease, start=min(lease.start, NOW - HOUR), array=lease.id % 50, array_limit=8)
        if lease.id % 5 == 0
        else lease
        for lease in plain.leases
        if _partition_of(lease, by_uuid) == "training"
    ]
    names = list(plain.groups)
    sessions = list(_sessions(gpus, names, draw))
    taken = {share.uuid for lease in sessions for share in lease.placement.gpus}
    for lease in lent:
        if lease.resumable and not taken & {share.uuid for share in lease.placement.gpus}:
            placement = replace(lease.placement, partition=_partition_of(lease, by_uuid))
            kept.append(replace(lease, placement=placement))
    waiting = [_with_more(work, draw) for work in plain.waiting]
    waiting += [_session(number, names, draw) for number in range(max(2, jobs // 1000))]
    nights = tuple((NOW - 11 * HOUR + day * DAY, NOW + HOUR + day * DAY) for day in range(-1, 30))
    months = tuple(NOW + 10 * DAY + 30 * DAY * month for month in range(3))
    per_name = {name: draw.randrange(10**12) for name in names if draw.random() < 0.5}
    last = gpus[-PER_NODE:]
    return replace(
        plain,
        gpus=tuple(gpus),
        partitions={
            "training": Partition("training", frozenset({"job"})),
            "night": Partition("night", frozenset({"session"}), 2000, Lend("training", "nights")),
            "day": Partition(
                "day",
                frozenset({"session"}),
                2000,
                Lend("training", "evenings", by_day=True, headroom=nodes // 4, slice=(1, 8), settle=0),
            ),
        },
        groups=dict(_tree(names)),
        priorities={
            **plain.priorities,
            "urgent": PriorityClass("urgent", 1000, 4000, frozenset(names[:20]), preempts=True),
        },
        windows={
            "nights": nights,
            "evenings": tuple((first + 14 * HOUR, last + 12 * HOUR) for first, last in nights),
        },
        waiting=tuple(sorted(waiting, key=lambda work: (work.submitted, work.id))),
        leases=tuple(
            replace(lease, id=number, work=number) for number, lease in enumerate(kept + sessions, 1)
        ),
        usage=Usage(
            per_name,
            {(name, f"{name}-{user}"): nano // 4 for name, nano in per_name.items() for user in range(4)},
        ),
        budgets={name: Budget(2000 * 1000 * HOUR, 500 * 1000 * HOUR, months) for name in names[::10]},
        reservations=(
            Reservation(
                1, frozenset(gpu.uuid for gpu in last), NOW + DAY, NOW + 2 * DAY, groups=frozenset(names[:1])
            ),
            Reservation(
                2, frozenset({gpus[-PER_NODE - 1].uuid}), NOW + 3 * DAY, NOW + 4 * DAY, because="a fan"
            ),
        ),
    )


def carried_out(snapshot: Snapshot, decided: Plan, now: Seconds = NOW) -> Snapshot:
    """Return the pool right after a plan: what starts runs, who is asked was asked, promises are made."""
    works = {work.id: work for work in snapshot.waiting}
    asked = {stop.lease for stop in decided.stops}
    leases = [replace(one, asked=now) if one.id in asked else one for one in snapshot.leases]
    for start in decided.starts:
        work = works.pop(start.work)
        leases.append(
            Lease(
                id=work.id,
                work=work.id,
                kind=work.kind,
                user=work.user,
                group=work.group,
                priority=work.priority,
                request=work.request,
                placement=start.placement,
                start=now,
                end=now + work.limit,
                whole=work.request.gpus > 0,
                resumable=work.resumable,
                grace=work.grace,
                array=work.array,
                array_limit=work.array_limit,
            )
        )
    waiting = tuple(works.values()) if decided.starts else snapshot.waiting
    return replace(snapshot, waiting=waiting, leases=tuple(leases), promises=decided.promises)


def without_ended(snapshot: Snapshot, now: Seconds) -> Snapshot:
    """Let those leave whose time, or whose grace, is over."""
    there = (
        one for one in snapshot.leases if one.end > now and (one.asked is None or one.asked + one.grace > now)
    )
    return replace(snapshot, leases=tuple(there))


def after_one_end(snapshot: Snapshot, number: int) -> Snapshot:
    """Let one lease end before its time."""
    return replace(snapshot, leases=snapshot.leases[:number] + snapshot.leases[number + 1 :])


def _gpus(nodes: int) -> list[Gpu]:
    return [
        Gpu(f"GPU-{node:03}-{index}", f"node{node:03}", index, "H100", CARD_MIB, "training", f"{node}")
        for node in range(nodes)
        for index in range(PER_NODE)
    ]


def _tree(names: list[str]) -> Iterator[tuple[str, Group]]:
    """Hang the groups under departments, which own something beside theirs."""
    limits = UserLimits(gpu_milli=8000, sessions=2, running_jobs=8)
    departments = [f"department{number:02}" for number in range(max(1, len(names) // 25))]
    for number, name in enumerate(departments):
        owed = {"gpu_milli": 2000, "gpu_milli.h100": 1000}
        limit = {"gpu_milli": 40_000, "gpu_milli.h100": 36_000} if number % 2 else None
        yield name, Group(name, "pool", Quota(owed, limit, {"gpu_milli": 20_000}), user=limits)
    for number, name in enumerate(names):
        owed = {"gpu_milli": 1000, "cpus_milli": 8000}
        limit = {"gpu_milli": 12_000} if number % 3 == 0 else None
        lend = {"gpu_milli": 500} if number % 10 == 0 else None
        parent = departments[number % len(departments)]
        yield name, Group(name, parent, Quota(owed, limit, lend), 1 + number % 2, limits)


def _partition_of(lease: Lease, gpus: dict[str, Gpu]) -> str:
    return gpus[lease.placement.gpus[0].uuid].partition


def _with_more(work: Work, draw: random.Random) -> Work:
    """Let some jobs be tasks of arrays, wait for a window, come back from a stop, or be old or urgent."""
    chance = draw.random()
    if chance < 0.2:
        return replace(work, array=work.id // 20, array_limit=4, grace=120)
    if chance < 0.3:
        return replace(work, window="nights", grace=120)
    if chance < 0.32:
        return replace(work, not_before=NOW + 300, grace=120)
    if chance < 0.34:
        return replace(work, age=8 * DAY, grace=120)
    if chance < 0.36 and int(work.group.removeprefix("group")) < 20:
        return replace(work, priority="urgent", grace=120)
    return replace(work, grace=120)


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
        priority=draw.choice(CLASSES),
        submitted=NOW - 100_000 + 5 * number,
        limit=draw.randrange(10, 48 * 60) * 60,
        request=request,
    )


def _session(number: int, names: list[str], draw: random.Random) -> Work:
    group = draw.choice(names)
    request = Request(gpu_mib=SLICE_MIB, share=(1, 8), cpus_milli=2000, memory_mib=4096)
    submitted = NOW - draw.randrange(600)
    return Work(number + 1_000_000, "session", f"{group}-0", group, "normal", submitted, 8 * HOUR, request)


def _leases(gpus: list[Gpu], names: list[str], draw: random.Random) -> list[Lease]:
    leases: list[Lease] = []
    position = 0
    while position < len(gpus):
        room = PER_NODE - gpus[position].index
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


def _sessions(gpus: list[Gpu], names: list[str], draw: random.Random) -> Iterator[Lease]:
    """Yield people's slices on half of the cards that serve sessions, some on each."""
    request = Request(gpu_mib=SLICE_MIB, share=(1, 8), cpus_milli=2000, memory_mib=4096)
    for gpu in gpus:
        if gpu.partition == "training" or gpu.index % 2:
            continue
        for _ in range(draw.randrange(1, 8)):
            group = draw.choice(names)
            placement = Placement((gpu.node,), (GpuShare(gpu.uuid, SLICE_MIB),), 125, gpu.partition)
            start, end = NOW - draw.randrange(1, 8 * HOUR), NOW + draw.randrange(60, 8 * HOUR)
            yield Lease(0, 0, "session", f"{group}-1", group, "normal", request, placement, start, end, False)
