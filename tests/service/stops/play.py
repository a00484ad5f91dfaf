"""A scheduler that says what a test says, and the steps of a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.ledger.records import Job, JobState, NewJob
from jupyter_gpupool.scheduler.model import (
    GpuShare,
    Placement,
    Plan,
    Promise,
    Request,
    Snapshot,
    Start,
    Stop,
    StopCause,
)
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.service.core import Service
from tests.service.fake_engine import Clock, FakeEngine

NOTHING = Plan((), (), (), {})
GRACE, LEAST = 7, 600
FOR_2 = "Stopped for job 2 of the group everyone, which takes back what its group is owed."


def place(card: int = 0) -> Placement:
    return Placement(("node1",), (GpuShare(f"SIM-node1-{card}", 8192),), 1000, "pool")


class Scheduler:
    """Starts what it is told to, promises the first card to the taker, and has the victims asked."""

    def __init__(self) -> None:
        self.starts: tuple[Start, ...] = ()
        self.stops: tuple[Stop, ...] = ()
        self.promised: list[int] = []
        self.on_plan: Callable[[], None] = lambda: None
        self.plans: Plan | None = None

    def fill(self, snapshot: Snapshot, now: int, standing: Standing) -> Plan:
        waiting = {work.id for work in snapshot.waiting}
        starts, self.starts = self.starts, ()
        promises = [Promise(work, now + GRACE, place(), now) for work in self.promised if work in waiting]
        return Plan(starts, tuple(promises), (), {}, self.stops)

    def plan(self, snapshot: Snapshot, now: int) -> Plan:
        found = self.plans or replace(NOTHING, promises=snapshot.promises)
        self.on_plan()
        return found


async def until(look: Callable[[], Any], wanted: Any = True) -> None:
    while look() != wanted:
        await asyncio.sleep(0.002)


def add(service: Service, **changes: Any) -> int:
    new = NewJob(
        owner="ada",
        group="everyone",
        name="j",
        kind="command",
        priority="normal",
        limit_s=36000,
        grace_s=GRACE,
        request=Request(gpus=1),
        entry={"argv": ["true"]},
        workdir="/",
        resumable=True,
        interpreter={"python": "/usr/bin/python3"},
    )
    return service.ledger.add_job(replace(new, **changes), service.now).id


async def run(service: Service, scheduler: Scheduler, id: int, card: int = 0) -> Job:
    """Let a job run on a card."""
    scheduler.starts = (Start(id, place(card)),)
    service.controller.changed()
    await until(lambda: service.ledger.jobs[id].state, JobState.RUNNING)
    return service.ledger.jobs[id]


def stop(service: Service, id: int, taker: int | None = 2, cause: StopCause = "reclaim") -> Stop:
    lease = service.ledger.jobs[id].lease
    assert lease is not None
    return Stop(id, lease, cause, taker)


async def ask(service: Service, scheduler: Scheduler, id: int = 1, taker: int = 2) -> None:
    """Let a pass say that a job leaves for another one, which is promised the room."""
    scheduler.stops, scheduler.promised = (stop(service, id, taker),), [taker]
    service.controller.changed()
    await until(lambda: service.ledger.jobs[id].state, JobState.STOPPING)


def leave(engine: FakeEngine, id: int, attempt: int, **changes: Any) -> None:
    ended = {"exit_code": 143, "signal": None, "cause": "stop"} | changes
    engine.end(f"{id}/{attempt}", **ended)


async def stopped(service: Service, scheduler: Scheduler, engine: FakeEngine, clock: Clock) -> Job:
    """Let job 1 run for the least time and leave for job 2."""
    job = await run(service, scheduler, 1)
    clock.now += LEAST
    await ask(service, scheduler)
    key = f"1/{job.attempt}"
    await until(lambda: (key, "stop", GRACE) in engine.stopped)
    leave(engine, 1, job.attempt)
    await until(lambda: service.ledger.jobs[1].state.waiting)
    scheduler.stops = ()
    return service.ledger.jobs[1]


def folder_of(home: Home, id: int) -> Path:
    """Make a job's folder as the launcher does."""
    folder = home.path / "jobs" / str(id)
    for name in ("out", "checkpoint"):
        (folder / name).mkdir(parents=True)
    return folder
