"""A running job gets more time from its owner's wish, unless that breaks a promise or a rule."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.ledger.records import Job, NewJob
from jupyter_gpupool.scheduler.extension import obstacle
from jupyter_gpupool.scheduler.model import Request
from jupyter_gpupool.service import extending
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.extending import extend_job
from tests.service.fake_engine import FakeEngine

TEAM = """
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups: {team: {quota: {gpus: 2}, user: {job_time: 3h}}}
default_group: team
"""


NEW = NewJob(
    "ada",
    "everyone",
    "j",
    "command",
    "normal",
    3600,
    7,
    Request(gpus=1),
    {"argv": ["true"]},
    "/",
    interpreter={"python": "/usr/bin/python3"},
)


def seconds(job: dict[str, Any]) -> float:
    begun, end = (datetime.fromisoformat(job[name]) for name in ("started_at", "expires_at"))
    return (end - begun).total_seconds()


@pytest.fixture
def call(start: Any) -> Any:
    return start("1x1x8GiB", TEAM)


def extend(call: Any, id: int | str, time: Any) -> Any:
    return call("POST", f"jobs/{id}/extend", {"time": time})


def test_it_has_the_time_and_the_engine_knows(call: Any) -> None:
    job = call.submit("sleep 3; echo done", time="2s", grace="0s")
    call.wait(job["id"], "running")
    answer = extend(call, job["id"], "1h")
    assert answer.status == 200, answer
    assert (answer.body["time_s"], seconds(answer.body)) == (3602, 3602)
    assert call.wait(job["id"])["state"] == "completed"


def test_nobody_who_was_promised_a_start_waits_longer(call: Any) -> None:
    job = call.submit("exec sleep 100", time="1h")
    call.wait(job["id"], "running")
    other = call.submit("true")
    while call.job(other["id"])["waiting"]["kind"] != "promise":
        pass
    answer = extend(call, job["id"], "1h")
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    message = answer.error["message"]
    assert message.startswith(
        f"Job {job['id']} cannot have 1h more: job {other['id']} is promised to start at"
    )
    assert call.job(job["id"])["time_s"] == 3600


@pytest.mark.parametrize(
    ("time", "code", "words"),
    [
        ("3h", "exceeds_limit", ["4h", "3h", "Ask for 2h or less."]),
        ("soon", "invalid_option", ["soon"]),
        (None, "invalid_option", ["time"]),
        ("-1h", "invalid_option", ["negative"]),
    ],
)
def test_what_cannot_be_given(call: Any, time: Any, code: str, words: list[str]) -> None:
    job = call.submit("exec sleep 100")
    call.wait(job["id"], "running")
    answer = extend(call, job["id"], time)
    assert (answer.status, answer.error["code"]) == (422, code)
    text = f"{answer.error['message']} {answer.error['hint'] or ''}"
    assert all(word in text for word in words), text


def test_only_what_runs(call: Any) -> None:
    job = call.submit("exec sleep 100")
    call.wait(job["id"], "running")
    waits = call.submit("true")
    answer = extend(call, waits["id"], "1h")
    assert (answer.status, "is queued" in answer.error["message"]) == (409, True)
    assert "--time" in answer.error["hint"]
    array = call.submit("true", array="0-9")
    answer = extend(call, array["id"], "1h")
    assert (answer.status, f"{array['id']}[0]" in answer.error["hint"]) == (409, True)
    assert extend(call, f"{array['id']}[0]", "1h").status == 409
    assert extend(call, 99, "1h").status == 404


Play = Callable[[Service], Awaitable[None]]


async def serving(home: Home, engine: FakeEngine, play: Play, cards: str = "1x1x8GiB") -> None:
    """Open a service on a fake engine, let something happen, close it."""
    async with AsyncExitStack() as stack:
        config = ServiceConfig(home, cards, boot_id="boot")
        pool = SimulatedPool.parse(cards)
        service = await open_service(stack, config, pool=pool, engine=engine)  # type: ignore[arg-type]
        await asyncio.wait_for(play(service), 20)


def submit(service: Service, **changes: Any) -> Job:
    job = service.ledger.add_job(replace(NEW, **changes), service.now)
    service.controller.submitted(job.id)
    return job


async def running(service: Service) -> Job:
    """Return a job that runs by now."""
    job = submit(service)
    while service.ledger.jobs[job.id].state != "running":
        await asyncio.sleep(0.005)
    return service.ledger.jobs[job.id]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while a wish is judged: one at each judgement."""
    steps: list[Callable[[], None]] = []

    def judge(*given: Any) -> str | None:
        found = obstacle(*given)
        if steps:
            steps.pop(0)()
        return found

    monkeypatch.setattr(extending, "obstacle", judge)
    return steps


def in_the_loop(step: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Return what another thread calls to have something done in this loop."""
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(step(), loop).result(20)


def test_a_promise_that_is_made_meanwhile_counts(home: Home, meanwhile: Any) -> None:
    async def play(service: Service) -> None:
        job = await running(service)

        async def other_comes() -> None:
            other = submit(service)
            while other.id not in service.ledger.promises:
                await asyncio.sleep(0.005)

        meanwhile.append(in_the_loop(other_comes))
        with pytest.raises(ApiError, match="job 2 is promised to start"):
            await extend_job(service, job, 600)
        assert service.ledger.jobs[job.id].limit_s == 3600

    asyncio.run(serving(home, FakeEngine(home.path / "jobs"), play))


def test_of_two_at_once_the_second_is_judged_by_what_the_first_has_got(home: Home, meanwhile: Any) -> None:
    async def play(service: Service) -> None:
        first, second = await running(service), await running(service)
        submit(service)
        while not service.ledger.promises:
            await asyncio.sleep(0.005)

        async def second_is_extended() -> None:
            await extend_job(service, second, 600)

        meanwhile.append(in_the_loop(second_is_extended))
        with pytest.raises(ApiError, match="job 3 is promised to start"):
            await extend_job(service, first, 600)

    asyncio.run(serving(home, FakeEngine(home.path / "jobs"), play, "1x2x8GiB"))


def test_where_much_changes_all_the_time_one_asks_again(home: Home, meanwhile: Any) -> None:
    async def play(service: Service) -> None:
        job, other = await running(service), await running(service)

        async def other_changes() -> None:
            service.ledger.extend_job(other.id, 1, service.now)

        meanwhile.extend([in_the_loop(other_changes)] * 20)
        with pytest.raises(ApiError, match="So much changes just now"):
            await extend_job(service, job, 600)
        assert len(meanwhile) == 20 - extending.TRIES

    asyncio.run(serving(home, FakeEngine(home.path / "jobs"), play, "1x2x8GiB"))


def test_an_engine_that_cannot_be_reached_is_told_again_at_the_next_start(home: Home) -> None:
    engine = FakeEngine(home.path / "jobs")

    async def lengthen(service: Service) -> None:
        job = await running(service)
        engine.deaf = True
        await extend_job(service, job, 600)
        engine.deaf = False

    async def look(service: Service) -> None:
        assert service.ledger.jobs[1].limit_s == 4200
        while not engine.extended:
            await asyncio.sleep(0.005)

    asyncio.run(serving(home, engine, lengthen))
    assert engine.extended == []
    asyncio.run(serving(home, engine, look))
    assert engine.extended == [("1/1", 4200)]
