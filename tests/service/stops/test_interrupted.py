"""A stop comes true once, whatever dies or is away in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_gpupool.engines.base import Started, WorkSpec
from jupyter_gpupool.ledger.records import JobState
from jupyter_gpupool.scheduler.model import Start
from jupyter_gpupool.service import runs
from jupyter_gpupool.service.core import Service
from tests.service.fake_engine import FakeEngine
from tests.service.stops.play import (
    FOR_2,
    GRACE,
    LEAST,
    Clock,
    Scheduler,
    add,
    ask,
    leave,
    place,
    run,
    until,
)


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
