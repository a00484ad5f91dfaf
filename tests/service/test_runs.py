"""What the service does with an engine that fails, is late, or knows more or less than the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.base import Process
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.engines.base import Ended, EngineError, Started, UnansweredError, WorkSpec
from jupyter_gpupool.ledger import LedgerUnavailable
from jupyter_gpupool.ledger.records import JobState, LeaseState, NewJob
from jupyter_gpupool.scheduler.model import Request
from jupyter_gpupool.service import controller, core, release, runs
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from tests.service.fake_engine import FakeEngine


@pytest.fixture(autouse=True)
def _no_locks_outside_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.CardLocks, "take", lambda uuids, home: core.CardLocks([], advisory=True))


class RealPool(SimulatedPool):
    """Cards that processes can be on."""

    simulated = False
    on_cards: list[Process] = []  # noqa: RUF012 - set by the test

    def processes(self) -> list[Process]:
        return list(self.on_cards)


def new_job(**changes: Any) -> NewJob:
    return replace(
        NewJob(
            owner="ada",
            group="everyone",
            name="j",
            kind="command",
            priority="normal",
            limit_s=3600,
            grace_s=7,
            request=Request(gpus=1),
            entry={"argv": ["true"]},
            workdir="/",
            interpreter={"python": "/usr/bin/python3"},
        ),
        **changes,
    )


Scenario = Callable[[Service], Awaitable[None]]


@pytest.fixture
def serve(home: Home, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Open a service on the fake engine, let a scenario happen, close it."""
    monkeypatch.setattr(controller, "RETRY_S", 0.01)
    monkeypatch.setattr(release, "CHECK_S", 0.01)

    def play(scenario: Scenario, *, boot: str = "boot", pool: Any = None) -> None:
        async def whole() -> None:
            async with AsyncExitStack() as stack:
                config = ServiceConfig(home, "1x1x8GiB", boot_id=boot)
                chosen = pool or SimulatedPool.parse("1x1x8GiB")
                service = await open_service(stack, config, pool=chosen, engine=engine)  # type: ignore[arg-type]
                await asyncio.wait_for(scenario(service), 20)

        asyncio.run(whole())

    return play


def submit(service: Service, **changes: Any) -> int:
    job = service.ledger.add_job(new_job(**changes), service.now)
    service.controller.submitted(job.id)
    return job.id


async def until(look: Callable[[], Any], wanted: Any = True) -> None:
    while look() != wanted:
        await asyncio.sleep(0.005)


def state(service: Service, id: int) -> JobState:
    return service.ledger.jobs[id].state


def lease_state(service: Service, id: int) -> LeaseState:
    lease = service.ledger.jobs[id].lease
    assert lease is not None
    return service.ledger.leases[lease].state


def test_an_engine_that_cannot_start_is_tried_again_later(serve: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        engine.failing = [EngineError("The launcher is gone.")]
        id = submit(service)
        await until(lambda: service.ledger.jobs[id].reason, "The launcher is gone.")
        job = service.ledger.jobs[id]
        assert (job.state, job.attempt) == (JobState.QUEUED, 1)
        assert job.not_before > service.now
        assert lease_state(service, id) is LeaseState.FREE

    serve(scenario)


def test_an_engine_that_does_not_answer_may_have_started_it(serve: Any, engine: FakeEngine) -> None:
    """It is asked for the same attempt again, and the lease stays."""

    async def scenario(service: Service) -> None:
        engine.failing = [UnansweredError("The launcher did not answer within 30 s.")] * 3
        id = submit(service)
        await until(lambda: state(service, id), JobState.RUNNING)
        assert engine.started == [f"{id}/1"] * 4
        assert service.ledger.jobs[id].attempt == 1
        assert lease_state(service, id) is LeaseState.HELD

    serve(scenario)


def test_in_the_end_it_fails(serve: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BACK_OFF_S", 0)

    async def scenario(service: Service) -> None:
        engine.failing = [EngineError("No.")] * runs.START_TRIES
        id = submit(service)
        await until(lambda: state(service, id), JobState.FAILED)
        assert service.ledger.jobs[id].attempt == runs.START_TRIES
        assert service.ledger.jobs[id].reason == "No."

    serve(scenario)


def test_a_disk_that_is_full_at_the_start_is_no_fault_of_the_job(serve: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        id = submit(service)
        await until(lambda: state(service, id), JobState.RUNNING)
        message = "The code cannot be unpacked: no space left on device."
        engine.end(f"{id}/1", exit_code=None, cause="start", message=message)
        job = service.ledger.jobs[id]
        assert (job.state, job.reason) == (JobState.QUEUED, message)
        assert job.not_before > service.now

    serve(scenario)


def test_an_end_that_comes_twice_counts_once(serve: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        id = submit(service)
        await until(lambda: state(service, id), JobState.RUNNING)
        engine.end(f"{id}/1", exit_code=3)
        engine.end(f"{id}/1", exit_code=0)
        assert (state(service, id), service.ledger.jobs[id].exit_code) == (JobState.FAILED, 3)
        await until(lambda: f"{id}/1" in engine.forgotten)

    serve(scenario)


def test_an_end_before_the_start_was_recorded(serve: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        start = engine.start

        async def quick(spec: WorkSpec) -> Started:
            found = await start(spec)
            engine.end(spec.key)
            return found

        engine.start = quick  # type: ignore[method-assign]
        id = submit(service)
        await until(lambda: state(service, id), JobState.COMPLETED)
        await asyncio.sleep(0.02)
        assert state(service, id) is JobState.COMPLETED

    serve(scenario)


def test_nothing_is_free_while_a_process_is_left(serve: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        first, second = submit(service), submit(service)
        await until(lambda: state(service, first), JobState.RUNNING)
        engine.end(f"{first}/1", tree_gone=False)
        await asyncio.sleep(0.05)
        assert state(service, first) is JobState.COMPLETED
        assert lease_state(service, first) is LeaseState.RELEASING
        assert state(service, second) is JobState.QUEUED
        assert engine.forgotten == []
        engine.end(f"{first}/1", tree_gone=True)
        await until(lambda: state(service, second), JobState.RUNNING)
        assert lease_state(service, first) is LeaseState.FREE

    serve(scenario)


def test_a_retry_waits_for_the_last_process_through_a_restart_too(serve: Any, engine: FakeEngine) -> None:
    async def before(service: Service) -> None:
        submit(service, retries=1)
        await until(lambda: state(service, 1), JobState.RUNNING)
        engine.end("1/1", exit_code=3, tree_gone=False)
        assert state(service, 1) is JobState.STOPPING
        assert lease_state(service, 1) is LeaseState.HELD

    async def after(service: Service) -> None:
        assert state(service, 1) is JobState.STOPPING
        engine.end("1/1", exit_code=3, tree_gone=True)
        job = service.ledger.jobs[1]
        assert (job.state, job.failures, lease_state(service, 1)) == (JobState.QUEUED, 1, LeaseState.FREE)
        assert job.reason == "Finished with exit code 3. It is tried again: retry 1 of 1."

    serve(before)
    serve(after)


@pytest.mark.parametrize("heard", [True, False])
def test_what_fails_once_it_is_cancelled_is_not_tried_again(
    serve: Any, engine: FakeEngine, heard: bool
) -> None:
    async def scenario(service: Service) -> None:
        id = submit(service, retries=1)
        await until(lambda: state(service, id), JobState.RUNNING)
        engine.deaf = not heard
        with nullcontext() if heard else pytest.raises(EngineError):
            await service.runs.stop(service.ledger.jobs[id], "cancel", "Cancelled by ada.")
        engine.end(f"{id}/1", exit_code=3)  # before it heard of it
        assert state(service, id) is (JobState.CANCELLED if heard else JobState.QUEUED)

    serve(scenario)


def test_nothing_is_free_while_the_cards_memory_is_in_use(serve: Any, engine: FakeEngine) -> None:
    pool = RealPool(1, 1, 8192)
    dead = 2**22 + 1  # no such process: its memory is still to be freed

    async def scenario(service: Service) -> None:
        first, second = submit(service), submit(service)
        await until(lambda: state(service, first), JobState.RUNNING)
        RealPool.on_cards = [Process(dead, "SIM-node1-0", 100, "compute")]
        engine.end(f"{first}/1")
        await asyncio.sleep(0.05)
        assert lease_state(service, first) is LeaseState.RELEASING
        assert state(service, second) is JobState.QUEUED
        RealPool.on_cards = []
        await until(lambda: state(service, second), JobState.RUNNING)

    serve(scenario, pool=pool)


def test_a_stranger_on_the_card_keeps_nothing(serve: Any, engine: FakeEngine) -> None:
    import os

    async def scenario(service: Service) -> None:
        first = submit(service)
        await until(lambda: state(service, first), JobState.RUNNING)
        RealPool.on_cards = [Process(os.getpid(), "SIM-node1-0", 100, "compute")]
        engine.end(f"{first}/1")
        assert lease_state(service, first) is LeaseState.FREE
        RealPool.on_cards = []

    serve(scenario, pool=RealPool(1, 1, 8192))


def test_a_full_disk_delays_the_record_of_an_end_and_loses_nothing(
    serve: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: Service) -> None:
        id = submit(service)
        await until(lambda: state(service, id), JobState.RUNNING)
        failures = 3
        end_job = service.ledger.end_job

        def full(*args: Any, **more: Any) -> Any:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise LedgerUnavailable("The disk is full.")
            return end_job(*args, **more)

        monkeypatch.setattr(service.ledger, "end_job", full)
        engine.end(f"{id}/1")
        assert state(service, id) is JobState.RUNNING
        assert service.controller.trouble == "The disk is full."
        assert engine.forgotten == []
        await until(lambda: state(service, id), JobState.COMPLETED)

    serve(scenario)


def test_a_full_disk_delays_starts(serve: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: Service) -> None:
        failures = 2
        start_jobs = service.ledger.start_jobs

        def full(*args: Any) -> Any:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise LedgerUnavailable("The disk is full.")
            return start_jobs(*args)

        monkeypatch.setattr(service.ledger, "start_jobs", full)
        id = submit(service)
        await until(lambda: service.controller.trouble, "The disk is full.")
        await until(lambda: state(service, id), JobState.RUNNING)
        assert service.controller.trouble is None
        assert engine.started == [f"{id}/1"]

    serve(scenario)


def test_boot_makes_ledger_and_engine_agree(serve: Any, engine: FakeEngine) -> None:
    ids: dict[str, int] = {}

    async def before(service: Service) -> None:
        ids["runs"] = submit(service)
        await until(lambda: state(service, ids["runs"]), JobState.RUNNING)

    async def ended_meanwhile(service: Service) -> None:
        assert state(service, ids["runs"]) is JobState.FAILED
        assert service.ledger.jobs[ids["runs"]].exit_code == 9

    serve(before)
    key = f"{ids['runs']}/1"
    engine.known[key] = Ended(key, 9, None, "exit", "", None, False, 0.0, True)
    serve(ended_meanwhile)


def test_boot_starts_again_what_was_about_to_start(serve: Any, engine: FakeEngine) -> None:
    async def before(service: Service) -> None:
        engine.start = lambda spec: asyncio.sleep(3600)  # type: ignore[assignment, method-assign, return-value]
        submit(service)
        await until(lambda: state(service, 1), JobState.STARTING)

    async def after(service: Service) -> None:
        await until(lambda: state(service, 1), JobState.RUNNING)
        assert engine.started == ["1/1"]

    serve(before)
    del engine.start
    serve(after)


def test_boot_after_a_reboot_queues_again(serve: Any, engine: FakeEngine) -> None:
    async def before(service: Service) -> None:
        submit(service)
        await until(lambda: state(service, 1), JobState.RUNNING)

    async def after(service: Service) -> None:
        assert service.ledger.jobs[1].reason == runs.REBOOT
        await until(lambda: engine.started, ["1/1", "1/2"])

    serve(before)
    engine.known.clear()
    serve(after, boot="another")


def test_boot_frees_nothing_that_may_still_run(
    serve: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(service: Service) -> None:
        submit(service)
        await until(lambda: state(service, 1), JobState.RUNNING)

    async def unknown_but_there(service: Service) -> None:
        assert state(service, 1) is JobState.RUNNING
        assert lease_state(service, 1) is LeaseState.HELD

        engine.remaining.clear()
        await until(lambda: engine.started, ["1/1", "1/2"])
        assert service.ledger.jobs[1].reason == runs.LOST

    monkeypatch.setattr(runs, "LOOK_S", 0.01)
    serve(before)
    engine.known.clear()
    engine.remaining.add("1/1")
    serve(unknown_but_there)


def test_boot_queues_again_what_is_nowhere(
    serve: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(service: Service) -> None:
        submit(service)
        await until(lambda: state(service, 1), JobState.RUNNING)

    async def after(service: Service) -> None:
        await until(lambda: engine.started, ["1/1", "1/2"])
        assert service.ledger.jobs[1].reason == runs.LOST

    serve(before)
    engine.known.clear()
    serve(after)


def test_boot_stops_what_the_ledger_does_not_know(serve: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        assert engine.stopped == [("77/1", "cancel", 0)]
        assert engine.forgotten == ["78/1"]

    engine.known["77/1"] = Started("77/1", 1, 0.0, None, True)
    engine.known["78/1"] = Ended("78/1", 0, None, "exit", "", None, False, 0.0, True)

    async def settled(service: Service) -> None:
        await until(lambda: bool(engine.forgotten))
        await scenario(service)

    serve(settled)


def test_boot_takes_up_leases_being_given_back(serve: Any, engine: FakeEngine) -> None:
    async def before(service: Service) -> None:
        submit(service)
        await until(lambda: state(service, 1), JobState.RUNNING)
        engine.end("1/1", tree_gone=False)
        assert lease_state(service, 1) is LeaseState.RELEASING

    async def still_there(service: Service) -> None:
        await asyncio.sleep(0.05)
        assert lease_state(service, 1) is LeaseState.RELEASING

    async def gone(service: Service) -> None:
        await until(lambda: lease_state(service, 1), LeaseState.FREE)

    serve(before)
    serve(still_there)
    engine.known["1/1"] = replace(engine.known["1/1"], tree_gone=True)  # type: ignore[arg-type]
    serve(gone)


def test_stop_waits_for_a_start_that_is_under_way(serve: Any, engine: FakeEngine) -> None:
    async def scenario(service: Service) -> None:
        gate = asyncio.Event()
        start = engine.start

        async def slow(spec: WorkSpec) -> Started:
            await gate.wait()
            return await start(spec)

        engine.start = slow  # type: ignore[method-assign]
        id = submit(service)
        await until(lambda: state(service, id), JobState.STARTING)
        stopping = asyncio.create_task(
            service.runs.stop(service.ledger.jobs[id], "cancel", "Cancelled by ada.")
        )
        await asyncio.sleep(0.02)
        assert engine.stopped == []
        gate.set()
        await stopping
        assert engine.stopped == [(f"{id}/1", "cancel", 7)]
        assert state(service, id) is JobState.STOPPING
        engine.end(f"{id}/1", exit_code=None, signal=15, cause="cancel")
        assert service.ledger.jobs[id].reason == "Cancelled by ada."

    serve(scenario)
