"""A site whose cards of sessions are lent to jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from jupyter_gpupool.scheduler.model import Gpu, Lease, Lend, Partition, Settings, Snapshot, Work

GIB = 1024
WINDOWS = ((100, 200), (300, 400), (500, 600))
NIGHT = Lend("training", "night", slice=(1, 8))
BY_DAY = replace(NIGHT, by_day=True, settle=20)


def site(
    pool: Any,
    waiting: Iterable[Work] = (),
    leases: Iterable[Lease] = (),
    lend: Lend = NIGHT,
    cards: int = 2,
    own: int = 0,
    windows: tuple[tuple[int, int], ...] = WINDOWS,
    **more: Any,
) -> Snapshot:
    """A site with `cards` for sessions, which are lent, and `own` for jobs."""
    gpus = (
        *pool.gpus(cards, partition="development"),
        *pool.gpus(own, partition="training", first=2),
    )
    kinds = {"development": ("session",), "training": ("job",)}
    more.setdefault("settings", Settings(min_run_time=10))
    snapshot: Snapshot = pool.snapshot(waiting, leases, gpus, kinds=kinds, windows={"night": windows}, **more)
    lending = Partition("development", frozenset({"session"}), lend=lend)
    return replace(snapshot, partitions={**snapshot.partitions, "development": lending})


def card(pool: Any, index: int) -> tuple[Gpu, ...]:
    return (pool.gpus(8, partition="development")[index],)
