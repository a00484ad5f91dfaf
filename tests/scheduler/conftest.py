"""A small language for pools: `pool` builds snapshots, works and leases with few words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpupool.scheduler.model import (
    Gpu,
    GpuShare,
    Group,
    Kind,
    Lease,
    Node,
    Partition,
    Placement,
    Plan,
    PriorityClass,
    Quota,
    Request,
    Snapshot,
    Work,
)
from jupyter_gpupool.scheduler.plan import fill, plan

CARD = 32 * 1024
CLASSES = {
    "low": PriorityClass("low", -100, 500),
    "normal": PriorityClass("normal", 0),
    "high": PriorityClass("high", 100, 2000, running_jobs=1),
    "urgent": PriorityClass("urgent", 1000, 4000, groups=frozenset({"a"})),
}


class Pool:
    """Builders; whatever a test does not name has a plain value."""

    card = CARD

    def gpus(
        self, cards: int, nodes: int = 1, partition: str = "training", model: str = "SIM", first: int = 1
    ) -> tuple[Gpu, ...]:
        return tuple(
            Gpu(f"{partition}-{node}-{index}", f"node{node}", index, model, CARD, partition)
            for node in range(first, first + nodes)
            for index in range(cards)
        )

    def group(
        self,
        name: str,
        cards: float = 100,
        parent: str = "pool",
        limit: float | None = None,
        lend: float | None = None,
        **more: Any,
    ) -> Group:
        owed, reach, lent = (
            None if amount is None else {"gpu_milli": round(1000 * amount)} for amount in (cards, limit, lend)
        )
        quota = {**(owed or {}), **more.pop("quota", {})}
        return Group(name, parent, Quota(quota, limit=reach, lend=lent), **more)

    def snapshot(
        self,
        waiting: Iterable[Work] = (),
        leases: Iterable[Lease] = (),
        gpus: Iterable[Gpu] | None = None,
        groups: Iterable[Group] | None = None,
        kinds: Mapping[str, tuple[Kind, ...]] | None = None,
        **more: Any,
    ) -> Snapshot:
        cards = tuple(self.gpus(4) if gpus is None else gpus)
        named = [self.group("a")] if groups is None else list(groups)
        purposes = kinds or {gpu.partition: ("job", "session") for gpu in cards}
        nodes = more.pop("nodes", None) or [
            Node(name, 64_000, 512 * 1024) for name in dict.fromkeys(gpu.node for gpu in cards)
        ]
        more.setdefault("priorities", CLASSES)
        more.setdefault("users", {})
        more.setdefault("windows", {})
        return Snapshot(
            nodes=tuple(nodes),
            gpus=cards,
            partitions={name: Partition(name, frozenset(kind)) for name, kind in purposes.items()},
            groups={group.name: group for group in named},
            waiting=tuple(sorted(waiting, key=lambda work: (work.submitted, work.id))),
            leases=tuple(leases),
            **more,
        )

    def job(self, id_: int, gpus: int = 1, limit: int = 100, **more: Any) -> Work:
        names = ("gpu_mib", "share", "gpu_types", "cpus_milli", "memory_mib", "partition")
        wanted = {name: more.pop(name) for name in names if name in more}
        fraction = "gpu_mib" in wanted or "share" in wanted
        request = Request(gpus=0 if fraction else gpus, **{"cpus_milli": 1000, **wanted})
        values: dict[str, Any] = {
            "kind": "job",
            "user": "ann",
            "group": "a",
            "priority": "normal",
            "submitted": id_,
            **more,
        }
        return Work(id=id_, limit=limit, request=request, **values)

    def session(self, id_: int, gpus: int = 1, **more: Any) -> Work:
        return self.job(id_, gpus, kind="session", **more)

    def lease(self, work: Work, cards: Iterable[Gpu], end: int, start: int = 0) -> Lease:
        taken = tuple(cards)
        request = work.request
        mib = CARD if request.gpus else request.gpu_mib
        milli = 1000 * request.gpus or -(-1000 * mib // CARD)
        shares = tuple(GpuShare(gpu.uuid, mib) for gpu in taken)
        nodes = tuple(dict.fromkeys(gpu.node for gpu in taken))
        placement = Placement(
            nodes, shares, milli if taken else 0, taken[0].partition if taken else "training"
        )
        return self.as_lease(work, placement, start, end)

    def as_lease(self, work: Work, placement: Placement, start: int, end: int) -> Lease:
        return Lease(
            id=work.id,
            work=work.id,
            kind=work.kind,
            user=work.user,
            group=work.group,
            priority=work.priority,
            request=work.request,
            placement=placement,
            start=start,
            end=end,
            whole=work.request.gpus > 0,
            resumable=work.resumable,
            grace=work.grace,
            array=work.array,
            array_limit=work.array_limit,
        )

    def after(self, snapshot: Snapshot, plan: Plan, now: int) -> Snapshot:
        """Record a plan as the ledger would: starts become leases, promises are kept."""
        works = {work.id: work for work in snapshot.waiting}
        begun = {start.work for start in plan.starts}
        new = [
            self.as_lease(works[start.work], start.placement, now, now + works[start.work].limit)
            for start in plan.starts
        ]
        return replace(
            snapshot,
            waiting=tuple(work for work in snapshot.waiting if work.id not in begun),
            leases=(*snapshot.leases, *new),
            promises=plan.promises,
        )


@pytest.fixture(scope="session")
def pool() -> Pool:
    return Pool()


@pytest.fixture(params=[plan, fill])
def decide(request: pytest.FixtureRequest) -> Callable[[Snapshot, int], Plan]:
    """Give a whole plan, then a fast pass."""
    found: Callable[[Snapshot, int], Plan] = request.param
    return found
