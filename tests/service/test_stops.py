"""A plan's stops come true once each, whatever dies in between, and leave the job where it belongs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.engines.base import Started, WorkSpec
from jupyter_gpupool.ledger.records import Job, JobState, NewJob
from jupyter_gpupool.ledger.stops import StopOrder
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
from jupyter_gpupool.service import controller, housekeeping, runs
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from tests.service.fake_engine import FakeEngine

NOTHING = Plan((), (), (), {})
GRACE, LEAST = 7, 600
FOR_2 = "Stopped for job 2 of the group everyone, which takes back what its group is owed."


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


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


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    found = Scheduler()
    monkeypatch.setattr(controller, "fill", found.fill)
    monkeypatch.setattr(controller, "plan", found.plan)
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(home: Home) -> FakeEngine:
    return FakeEngine(home.path / "jobs")


Scenario = Callable[[Service], Awaitable[None]]


@pytest.fixture
def serve(
    home: Home, engine: FakeEngine, scheduler: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Open a service on the fake engine and scheduler, let a scenario happen, close it."""
    monkeypatch.setattr(controller, "RETRY_S", 0.01)
    monkeypatch.setattr(runs, "LOOK_S", 0.01)
    monkeypatch.setattr(housekeeping, "CHECKPOINT_S", 0.01)

    def play(scenario: Scenario, boot: str = "boot") -> None:
        async def whole() -> None:
            async with AsyncExitStack() as stack:
                config = ServiceConfig(home, "1x2x8GiB", boot_id=boot)
                pool = SimulatedPool.parse("1x2x8GiB")
                service = await open_service(stack, config, pool=pool, engine=engine, clock=clock)  # type: ignore[arg-type]
                await asyncio.wait_for(scenario(service), 20)

        asyncio.run(whole())

    return play


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


def test_a_stop_is_written_then_asked_for_with_the_jobs_grace(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, clock: Clock
) -> None:
    async def scenario(service: Service) -> None:
        await run(service, scheduler, add(service))
        add(service)
        await ask(service, scheduler)
        job, (lease,) = service.ledger.jobs[1], service.ledger.stops.of(1)
        assert (job.reason, lease.asked, lease.taker) == (FOR_2, service.now, 2)
        assert service.ledger.promises.keys() == {2}
        await until(lambda: engine.stopped, [("1/1", "stop", GRACE)])
        for _ in range(3):
            service.controller.changed()
            await asyncio.sleep(0.01)
        assert engine.stopped == [("1/1", "stop", GRACE)]

    serve(scenario)


def test_after_its_grace_it_is_queued_again_and_rests(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, clock: Clock
) -> None:
    async def scenario(service: Service) -> None:
        submitted = service.now
        add(service), add(service)
        job = await stopped(service, scheduler, engine, clock)
        assert (job.state, job.stops, job.reason) == (JobState.QUEUED, 1, FOR_2)
        assert (job.submitted, job.not_before) == (submitted, service.now + 60)
        assert not service.ledger.held()

    serve(scenario)


def test_who_finishes_in_the_grace_is_completed(serve: Any, scheduler: Scheduler, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        await run(service, scheduler, add(service))
        add(service)
        await ask(service, scheduler)
        leave(engine, 1, 1, exit_code=0)
        job = service.ledger.jobs[1]
        assert job.state is JobState.COMPLETED
        assert job.reason.startswith("Finished with exit code 0. It had been asked to stop;")

    serve(scenario)


def test_who_is_cancelled_in_the_grace_is_cancelled(
    serve: Any, scheduler: Scheduler, engine: FakeEngine
) -> None:
    async def asked(service: Service) -> None:
        await run(service, scheduler, add(service))
        add(service)
        await ask(service, scheduler)
        await service.runs.stop(service.ledger.jobs[1], "cancel", "Cancelled by ada.")
        scheduler.stops = ()

    async def ended(service: Service) -> None:
        leave(engine, 1, 1, cause="cancel")
        job = service.ledger.jobs[1]
        assert (job.state, job.reason, job.stops) == (JobState.CANCELLED, "Cancelled by ada.", 0)

    serve(asked)
    serve(ended)


@pytest.mark.parametrize("turn", ["no promise", "gone", "asked", "cancelled"])
def test_what_does_not_hold_any_more_is_not_carried_out(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, turn: str
) -> None:
    """Nobody leaves in vain: it takes all who should leave, and the promise of the room."""

    async def scenario(service: Service) -> None:
        for card, id in enumerate((add(service), add(service))):
            await run(service, scheduler, id, card)
        taker = add(service)
        scheduler.stops = (stop(service, 1, taker), stop(service, 2, taker))
        scheduler.promised = [] if turn == "no promise" else [taker]
        if turn == "gone":
            engine.end("1/1", exit_code=0)
        elif turn == "asked":
            service.ledger.stops.ask([StopOrder(stop(service, 1), "Earlier.")], service.now)
        elif turn == "cancelled":
            await service.runs.stop(service.ledger.jobs[1], "cancel", "Cancelled by ada.")
        service.controller.changed()
        await asyncio.sleep(0.01)
        assert service.ledger.jobs[2].state is JobState.RUNNING
        assert ("2/1", "stop", GRACE) not in engine.stopped

    serve(scenario)


def test_at_a_hand_back_they_leave_for_nobody(serve: Any, scheduler: Scheduler, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        await run(service, scheduler, add(service))
        scheduler.stops = (stop(service, 1, None, "hand_back"),)
        service.controller.changed()
        await until(lambda: engine.stopped, [("1/1", "stop", GRACE)])
        assert service.ledger.jobs[1].reason == "Stopped because the lent cards of pool are handed back."

    serve(scenario)


@pytest.mark.parametrize("meanwhile", ["nothing", "an end"])
def test_the_stops_of_a_whole_plan_hold_only_while_the_same_is_held(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, meanwhile: str
) -> None:
    began, go_on = threading.Event(), threading.Event()

    async def scenario(service: Service) -> None:
        for card, id in enumerate((add(service), add(service))):
            await run(service, scheduler, id, card)
        taker = add(service)
        promise = Promise(taker, service.now + GRACE, place(), service.now)
        scheduler.plans = Plan((), (promise,), (), {}, (stop(service, 1, taker),))
        scheduler.on_plan = lambda: began.set() or go_on.wait(10)  # type: ignore[func-returns-value]
        service.controller.submitted(taker)
        await until(began.is_set)
        if meanwhile == "an end":
            engine.end("2/1", exit_code=0)
        scheduler.on_plan = lambda: None
        scheduler.plans = None
        go_on.set()
        if meanwhile == "nothing":
            await until(lambda: service.ledger.jobs[1].state, JobState.STOPPING)
        else:
            await until(lambda: taker in service.ledger.promises)
            assert service.ledger.jobs[1].state is JobState.RUNNING

    serve(scenario)


def test_an_engine_that_is_away_is_asked_again(serve: Any, scheduler: Scheduler, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        await run(service, scheduler, add(service))
        add(service)
        engine.deaf = True
        await ask(service, scheduler)
        await asyncio.sleep(0.03)
        engine.deaf = False
        await until(lambda: engine.stopped, [("1/1", "stop", GRACE)])

    serve(scenario)


def test_a_service_that_dies_before_it_asks_asks_when_it_is_back(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def written(service: Service) -> None:
        await run(service, scheduler, add(service))
        add(service)
        clock.now += LEAST
        monkeypatch.setattr(service.runs, "ask", lambda lease: None)
        await ask(service, scheduler)
        scheduler.stops = ()

    async def back(service: Service) -> None:
        await until(lambda: engine.stopped, [("1/1", "stop", GRACE)])
        assert service.ledger.jobs[1].state is JobState.STOPPING

    async def ended(service: Service) -> None:
        leave(engine, 1, 1)
        leave(engine, 1, 1)  # told twice
        await until(lambda: service.ledger.jobs[1].state, JobState.QUEUED)
        await asyncio.sleep(0.02)
        assert (service.ledger.jobs[1].stops, service.ledger.jobs[1].in_vain) == (1, 1)

    serve(written)
    serve(back)
    serve(ended)


def test_a_job_that_leaves_while_the_service_is_down_is_counted_once(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, clock: Clock
) -> None:
    async def asked(service: Service) -> None:
        await run(service, scheduler, add(service))
        add(service)
        clock.now += LEAST
        await ask(service, scheduler)
        scheduler.stops = ()

    async def counted(service: Service) -> None:
        await until(lambda: service.ledger.jobs[1].state, JobState.QUEUED)
        job = service.ledger.jobs[1]
        assert (job.stops, job.reason, job.not_before) == (1, FOR_2, service.now + 60)

    serve(asked)
    engine.end("1/1", tell=False, exit_code=None, signal=15, cause="stop")
    serve(counted)
    serve(counted)


def test_a_job_is_asked_once_it_has_started(serve: Any, scheduler: Scheduler, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        gate, begin = asyncio.Event(), engine.start

        async def slow(spec: WorkSpec) -> Started:
            await gate.wait()
            return await begin(spec)

        engine.start = slow  # type: ignore[method-assign]
        scheduler.starts = (Start(add(service), place()),)
        service.controller.changed()
        await until(lambda: service.ledger.jobs[1].state, JobState.STARTING)
        add(service)
        await ask(service, scheduler)
        await asyncio.sleep(0.01)
        assert engine.stopped == []
        gate.set()
        await until(lambda: engine.stopped, [("1/1", "stop", GRACE)])
        leave(engine, 1, 1)
        await until(lambda: service.ledger.jobs[1].state, JobState.QUEUED)
        assert (service.ledger.jobs[1].stops, service.ledger.jobs[1].in_vain) == (1, 0)  # it never ran

    serve(scenario)


def test_a_job_that_was_asked_and_never_began_waits_again(
    serve: Any, scheduler: Scheduler, engine: FakeEngine
) -> None:
    async def killed(service: Service) -> None:
        async def never(spec: WorkSpec) -> Started:
            await asyncio.sleep(100)
            raise AssertionError

        engine.start = never  # type: ignore[method-assign]
        scheduler.starts = (Start(add(service), place()),)
        service.controller.changed()
        await until(lambda: service.ledger.jobs[1].state, JobState.STARTING)
        add(service)
        await ask(service, scheduler)
        scheduler.stops = ()

    async def back(service: Service) -> None:
        job = service.ledger.jobs[1]
        assert (job.state, job.reason, job.stops) == (JobState.QUEUED, FOR_2, 0)

    serve(killed)
    serve(back)


def test_a_reboot_is_no_stop_for_others(serve: Any, scheduler: Scheduler, engine: FakeEngine) -> None:
    async def asked(service: Service) -> None:
        await run(service, scheduler, add(service))
        add(service)
        await ask(service, scheduler)
        scheduler.stops = ()
        engine.known.clear()

    async def back(service: Service) -> None:
        job = service.ledger.jobs[1]
        assert (job.state, job.stops, job.reason) == (JobState.QUEUED, 0, runs.REBOOT)

    serve(asked)
    serve(back, boot="another")


def test_two_stops_that_bring_it_no_further_hold_it_and_its_owner_is_told(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, clock: Clock
) -> None:
    async def scenario(service: Service) -> None:
        add(service), add(service)
        assert (await stopped(service, scheduler, engine, clock)).state is JobState.QUEUED
        clock.now += 60
        job = await stopped(service, scheduler, engine, clock)
        assert job.state is JobState.HELD
        assert "stopped for others 2 times without getting further" in job.held
        (news, *_) = [event for event in service.bus.after(0, "ada") if event.data.get("state") == "held"]
        assert news.data["job"] == 1

    serve(scenario)


def test_a_newer_checkpoint_or_a_higher_fraction_keeps_it_going(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, clock: Clock, home: Home
) -> None:
    async def scenario(service: Service) -> None:
        add(service), add(service)
        folder = folder_of(home, 1)
        (folder / "checkpoint" / "step-1").mkdir()
        for turn in range(1, 4):
            saved = folder / "checkpoint" / "step-1" / f"{turn}.pt"
            saved.write_text("x")
            os.utime(saved, (clock.now, clock.now))
            assert (await stopped(service, scheduler, engine, clock)).in_vain == 0
            clock.now += 1800
        for turn in range(4, 6):
            (folder / str(turn)).mkdir()
            report = f'{{"t": {clock.now}, "fraction": 0.{turn}}}\n'
            (folder / str(turn) / "progress.jsonl").write_text(report)
            job = await stopped(service, scheduler, engine, clock)
            assert (job.state, job.in_vain, job.progress_ppm) == (JobState.QUEUED, 0, turn * 100_000)
            clock.now += 1800

    serve(scenario)


def test_a_job_that_has_written_a_checkpoint_can_resume(serve: Any, scheduler: Scheduler, home: Home) -> None:
    async def scenario(service: Service) -> None:
        await run(service, scheduler, add(service, resumable=False))
        folder = folder_of(home, 1)
        await asyncio.sleep(0.05)
        assert not service.ledger.held()[0].resumable
        (folder / "checkpoint" / "model.pt").write_text("x")
        await until(lambda: service.ledger.held()[0].resumable)
        assert service.ledger.jobs[1].resumable

    serve(scenario)


def test_an_end_is_recorded_though_nobody_can_say_how_far_the_job_came(
    serve: Any, scheduler: Scheduler, engine: FakeEngine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: Service) -> None:
        monkeypatch.setattr(service.progress, "mark", lambda job: 1 // 0)
        add(service)
        add(service)
        assert (await stopped(service, scheduler, engine, clock)).stops == 1

    serve(scenario)
