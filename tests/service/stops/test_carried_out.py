"""A plan's stops come true once each, and what does not hold any more does not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from jupyter_gpupool.ledger.records import JobState
from jupyter_gpupool.ledger.stops import StopOrder
from jupyter_gpupool.scheduler.model import Plan, Promise
from jupyter_gpupool.service.core import Service
from tests.service.fake_engine import FakeEngine
from tests.service.stops.play import (
    FOR_2,
    GRACE,
    Clock,
    Scheduler,
    add,
    ask,
    leave,
    place,
    run,
    stop,
    stopped,
    until,
)


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
