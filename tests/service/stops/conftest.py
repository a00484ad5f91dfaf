"""A service on an engine and a scheduler that do as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.service import controller, housekeeping, runs
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from tests.service.fake_engine import Clock, FakeEngine
from tests.service.stops.play import Scheduler


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    found = Scheduler()
    monkeypatch.setattr(controller, "fill", found.fill)
    monkeypatch.setattr(controller, "plan", found.plan)
    return found


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
