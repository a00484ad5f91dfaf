"""How far a job came before it left for others, and that who gets no further is held."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.ledger.records import JobState
from jupyter_gpupool.service.core import Service
from tests.service.fake_engine import Clock, FakeEngine
from tests.service.stops.play import Scheduler, add, folder_of, run, stopped, until


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
