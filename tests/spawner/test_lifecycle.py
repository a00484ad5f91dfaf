"""The lease ends with the server, whatever fails, over any backend; nothing secret is remembered."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.spawner import pool as pool_module
from tests.spawner.backends import COMMAND, PooledProcess, StubBackend
from tests.spawner.conftest import Site
from tests.spawner.scripted_pool import TOKEN

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "PAUSES", ())


async def running(site: Site, options: Any = None) -> Any:
    user = site.user("vision")
    assert (await site.start(user, options or {}))[0] == 201
    return user


async def test_a_backend_that_fails_leaves_no_lease(site: Site, stub: type[StubBackend]) -> None:
    stub.fails = RuntimeError("no disk")
    user = site.user("vision")
    assert (await site.start(user, {}))[0] == 500
    await site.settled(user)
    assert len(site.pool.withdrawn) == 1
    assert site.pool.live == []


async def test_a_start_that_is_stopped_in_the_backend_leaves_no_lease(
    site: Site, stub: type[StubBackend]
) -> None:
    stub.hangs = True
    site.settings["slow_spawn_timeout"] = 0.05
    user = site.user("vision")
    assert (await site.start(user, {}))[0] == 202
    await site.until(lambda: stub.starts)
    await site.api(user, "DELETE")
    await site.settled(user)
    assert site.pool.live == []


async def test_a_server_whose_lease_ended_while_it_started_is_stopped(
    site: Site, stub: type[StubBackend]
) -> None:
    site.pool.ends_at_once = True
    user = site.user("vision")
    status, body = await site.start(user, {})
    assert status == 409
    assert json.loads(body)["message"].startswith("No server was started on it. Start the server again")
    await site.settled(user)
    assert stub.stops == [user.name]


async def test_a_lease_that_cannot_be_looked_at_is_no_reason_to_stop(
    site: Site, stub: type[StubBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = stub.start

    async def while_the_service_goes_down(self: StubBackend) -> tuple[str, int]:
        await site.pool.stop()
        return await start(self)

    monkeypatch.setattr(stub, "start", while_the_service_goes_down)
    user = site.user("vision")
    assert (await site.start(user, {}))[0] == 201
    await site.pool.start()


async def test_stopping_gives_the_lease_back(site: Site, stub: type[StubBackend]) -> None:
    user = await running(site)
    assert (await site.api(user, "DELETE"))[0] == 204
    assert stub.stops == [user.name]
    assert site.pool.live == []


async def test_a_server_that_dies_gives_its_lease_back(site: Site) -> None:
    user = await running(site)
    spawner = user.spawners[""]
    spawner.alive = False
    assert await spawner.poll_and_notify() == 0
    assert site.pool.live == []
    assert not spawner.active


async def test_poll_and_stop_work_without_the_service(site: Site, stub: type[StubBackend]) -> None:
    user = await running(site)
    await site.pool.stop()
    assert await user.spawners[""].poll() is None
    assert (await site.api(user, "DELETE"))[0] == 204
    assert stub.stops == [user.name]


async def test_a_restarted_hub_gives_back_the_lease_of_a_server_that_died_meanwhile(site: Site) -> None:
    user = await running(site)
    user.spawners.pop("")
    spawner = user.spawners[""]
    assert await spawner.poll() == 0
    assert site.pool.live == []


async def test_the_state_holds_the_lease_and_no_secret(site: Site) -> None:
    user = await running(site)
    state = json.dumps(user.orm_spawners[""].state)
    assert json.loads(state) == {"gpupool_lease": site.pool.live[0]}
    assert TOKEN not in state


async def test_states_that_an_older_hub_left_are_read(site: Site) -> None:
    user = site.user("vision")
    spawner = user.spawners[""]
    for state in ({}, {"pid": 7}, {"gpupool_lease": "x"}, {"gpupool_lease": None}):
        spawner.load_state(state)
        assert await spawner.poll() == 0


@pytest.fixture
def processes(site: Site) -> None:
    site.use(PooledProcess)
    site.settings["config"].PooledProcess.cmd = COMMAND
    site.settings["config"].SimpleLocalProcessSpawner.home_dir_template = str(site.folder / "{username}")


@pytest.mark.usefixtures("processes")
async def test_the_hubs_own_spawner_runs_and_stops_on_a_lease(site: Site) -> None:
    user = await running(site, {"slice": "1/8"})
    spawner = user.spawners[""]
    pid = spawner.pid
    assert b"GPU-aaaa" in Path(f"/proc/{pid}/environ").read_bytes()
    assert await spawner.poll() is None
    await site.api(user, "DELETE")
    assert not os.path.exists(f"/proc/{pid}")
    assert site.pool.live == []


@pytest.mark.usefixtures("processes")
async def test_the_hubs_own_spawner_forgets_its_state_in_poll_and_the_lease_ends_all_the_same(
    site: Site,
) -> None:
    user = await running(site)
    spawner = user.spawners[""]
    os.kill(spawner.pid, signal.SIGKILL)
    spawner.proc.wait()
    await spawner.poll_and_notify()
    assert site.pool.live == []


@pytest.mark.usefixtures("processes")
async def test_a_stop_before_the_backend_has_started_signals_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _signal: signalled.append(pid))
    site.pool.free = False
    site.settings["slow_spawn_timeout"] = 0.05
    user = site.user("vision")
    assert (await site.start(user, {}))[0] == 202
    await site.until(lambda: site.pool.live)
    await user.stop("")
    assert signalled == []
