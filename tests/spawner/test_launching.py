"""Servers that the real launcher runs: their life, their end, and a Hub that dies at each step."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from jupyter_gpupool.engines.base import Ended, EngineError, Started
from jupyter_gpupool.engines.local.proctree import look_at
from jupyter_gpupool.spawner import attempts as attempts_module
from jupyter_gpupool.spawner.attempts import Attempts
from tests.spawner.conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def running(site: Site, options: Any = None) -> Any:
    user = site.user("vision")
    status, body = await site.start(user, options or {"slice": "1/8"})
    assert status == 201, body
    return user


def alive(pid: int) -> bool:
    found = look_at(pid)
    return found is not None and not found.zombie


def children(name: bytes, mark: str) -> list[int]:
    """The processes of this name that carry `mark` in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            named = name in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if named and mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(int(pid))
        except OSError:
            continue
    return [pid for pid in found if alive(pid)]


async def environment_of(spawner: Any) -> dict[str, str]:
    async with aiohttp.ClientSession() as session, session.get(spawner.server.url) as reply:
        return eval(await reply.text())  # the server of these tests prints its own environment


def restart_hub(user: Any, name: str = "") -> Any:
    """What a new Hub process knows: the database."""
    user.spawners.pop(name)
    return user.spawners[name]


async def test_it_runs_on_its_lease_with_its_limits(site: Site, launcher: Path) -> None:
    site.pool.memory_mib, site.pool.cpus_milli = 2048, 1500
    user = await running(site)
    spawner = user.spawners[""]
    environment = await environment_of(spawner)
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    assert environment["HOME"] == f"{launcher}/home/{user.name}"
    assert environment["USER"] == user.name
    assert (environment["MEM_LIMIT"], environment["CPU_LIMIT"]) == (str(2048 << 20), "1.5")
    assert environment["JUPYTERHUB_USER"] == user.name
    report = await spawner.attempts.find(f"{site.pool.live[0]}/1")
    assert isinstance(report, Started)
    assert await spawner.poll() is None


async def test_it_ends_with_every_process_it_left(site: Site, launcher: Path) -> None:
    site.settings["config"].Launched.environment = {"TEST_LEFT_BEHIND": "2", "TEST_MARK": str(launcher)}
    user = await running(site)
    await site.until(lambda: len(children(b"sleep", str(launcher))) == 2)
    key = user.spawners[""]._key
    assert (await site.api(user, "DELETE"))[0] == 204
    assert children(b"sleep", str(launcher)) == []
    assert site.pool.live == []
    end = await Attempts.of(str(launcher), site.settings).find(key)
    assert end is None or (isinstance(end, Ended) and end.tree_gone)


async def test_it_dies_and_the_hub_hears_of_it(site: Site, launcher: Path) -> None:
    site.settings["config"].Launched.environment = {"TEST_LEFT_BEHIND": "1", "TEST_MARK": str(launcher)}
    user = await running(site)
    await site.until(lambda: children(b"sleep", str(launcher)))
    spawner = user.spawners[""]
    (server,) = children(sys.executable.encode(), str(launcher))
    os.kill(server, signal.SIGKILL)
    await site.until(lambda: not children(b"sleep", str(launcher)))
    while await spawner.poll() is None:
        await asyncio.sleep(0.02)
    assert await spawner.poll() is not None
    await spawner.poll_and_notify()
    assert site.pool.live == []


BROKEN = "import sys; print('Traceback ...'); print('ModuleNotFoundError: <traitlets>'); sys.exit(3)"


async def test_a_server_that_cannot_start_says_why_at_once(site: Site, launcher: Path) -> None:
    site.settings["config"].LauncherSpawner.cmd = [sys.executable, "-S", "-c", BROKEN]
    user = site.user("vision")
    status, body = await site.start(user, {})
    assert status == 409
    assert json.loads(body)["message"] == (
        "Your server ended with exit code 3 before it listened. "
        "The last it said: ModuleNotFoundError: <traitlets>"
    )
    await site.settled(user)
    assert site.pool.live == []


async def test_a_program_that_is_not_there(site: Site, launcher: Path) -> None:
    site.settings["config"].LauncherSpawner.cmd = ["no-such-program"]
    user = site.user("vision")
    status, body = await site.start(user, {})
    assert status == 409
    assert "no-such-program" in json.loads(body)["message"]
    await site.settled(user)
    assert site.pool.live == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as another account")
async def test_a_port_that_a_stranger_took_first(site: Site, launcher: Path) -> None:
    ready, word = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(12345, 12345, 12345)
        squatted = socket.create_server(("127.0.0.1", 0))
        os.write(word, str(squatted.getsockname()[1]).encode())
        while True:
            squatted.accept()
    try:
        site.settings["config"].Launched.port = int(os.read(ready, 10))
        site.settings["config"].LauncherSpawner.cmd = ["sleep", "60"]
        status, body = await site.start(site.user("vision"), {})
        assert status == 409
        assert "was taken by another account" in json.loads(body)["message"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(word)


async def test_the_end_of_a_server_that_ran_is_its_exit_code(site: Site, launcher: Path) -> None:
    user = await running(site)
    spawner = user.spawners[""]
    environment = await environment_of(spawner)
    (server,) = children(sys.executable.encode(), environment["JUPYTERHUB_API_TOKEN"])
    os.kill(server, signal.SIGKILL)
    while await spawner.poll() is None:
        await asyncio.sleep(0.02)
    assert await spawner.poll() == 1


async def test_the_service_is_down_and_it_is_polled_and_stopped(site: Site, launcher: Path) -> None:
    user = await running(site)
    await site.pool.stop()
    spawner = user.spawners[""]
    pid = spawner._pid
    assert await spawner.poll() is None
    assert (await site.api(user, "DELETE"))[0] == 204
    assert not alive(pid)


async def test_without_a_launcher_a_login_gets_one_sentence(site: Site, launcher: Path) -> None:
    nowhere = launcher / "elsewhere"
    nowhere.mkdir(mode=0o700)
    site.settings["config"].LauncherSpawner.launcher_home = str(nowhere)
    user = site.user("vision")
    status, body = await site.start(user, {})
    assert status == 409
    assert "launcher" in json.loads(body)["message"].lower()
    await site.settled(user)
    assert site.pool.live == []


async def test_an_account_that_is_not_there_is_one_sentence(site: Site, launcher: Path) -> None:
    site.pool.user = "nobody-of-this-name"
    status, body = await site.start(site.user("vision"), {})
    assert status == 409
    assert "no account nobody-of-this-name" in json.loads(body)["message"]


async def test_where_nobody_else_reads_options_a_typing_error_is_refused(site: Site, launcher: Path) -> None:
    user = site.user("vision")
    status, body = await site.start(user, {"slyce": "1/8"})
    assert (status, json.loads(body)["message"]) == (400, 'Unknown option "slyce". Did you mean slice?')
    await site.settled(user)
    assert user.orm_spawners[""].user_options == {}
    site.settings["config"].Launched.pre_spawn_hook = lambda _spawner: None
    assert (await site.start(user, {"image": "big"}))[0] == 201


async def test_no_home_outside_its_folder(site: Site, launcher: Path) -> None:
    user = site.user("vision")
    spawner = user.spawners[""]
    user.orm_user.name = ".."
    try:
        site.pool.free = True
        spawner.work = (await _spawn(site)).work
        with pytest.raises(Exception, match="cannot be the name of a folder"):
            spawner._home(spawner.work)
    finally:
        user.orm_user.name = "harmless"
        site.hub.db.commit()


async def _spawn(site: Site) -> Any:
    from jupyter_gpupool.spawner.pool import Pool
    from tests.spawner.scripted_pool import TOKEN

    return await Pool(site.pool.url, TOKEN).request_lease({"slice": None, "wait": True})


# A Hub that dies


async def test_a_restarted_hub_finds_its_server(site: Site, launcher: Path) -> None:
    user = await running(site)
    url = user.spawners[""].server.url
    spawner = restart_hub(user)
    assert await spawner.poll() is None
    assert await spawner.get_url() == url
    await user.stop("")
    assert site.pool.live == []


async def test_the_hub_dies_after_the_server_started_and_before_it_wrote_that_down(
    site: Site, launcher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor finds server and port in what was written before, and takes the server over."""
    user = site.user("vision")
    spawner = user.spawners[""]
    started = asyncio.Event()
    start = Attempts.start

    async def start_and_die(self: Attempts, spec: Any) -> Started:
        await start(self, spec)
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Attempts, "start", start_and_die)
    site.settings["slow_spawn_timeout"] = 0.05
    assert (await site.start(user, {}))[0] == 202
    await started.wait()
    dead, port = spawner._spawn_future, spawner.port
    spawner = restart_hub(user)
    assert await spawner.poll() is None
    assert str(port) in await spawner.get_url()
    await spawner.stop()
    assert not isinstance(await spawner.attempts.find(f"{site.pool._next}/1"), Started)
    dead.cancel()
    await asyncio.wait([dead])


async def test_the_hub_dies_between_the_lease_and_the_server(
    site: Site, launcher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = site.user("vision")
    reached = asyncio.Event()

    async def die(_self: Attempts, _spec: Any) -> Started:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Attempts, "start", die)
    site.settings["slow_spawn_timeout"] = 0.05
    await site.start(user, {})
    await reached.wait()
    dead = user.spawners[""]._spawn_future
    spawner = restart_hub(user)
    assert await spawner.poll() == 0
    assert site.pool.live == []
    dead.cancel()
    await asyncio.wait([dead])


async def test_a_stop_in_the_middle_of_the_launchers_start_leaves_nothing(
    site: Site, launcher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = Attempts.start, asyncio.Event()

    async def slowly(self: Attempts, spec: Any) -> Started:
        report = await start(self, spec)
        started.set()
        await asyncio.sleep(3600)
        return report

    monkeypatch.setattr(Attempts, "start", slowly)
    site.settings["slow_spawn_timeout"] = 0.05
    user = site.user("vision")
    await site.start(user, {})
    await started.wait()
    await site.api(user, "DELETE")
    await site.settled(user)
    assert not isinstance(
        await Attempts.of(str(launcher), site.settings).find(f"{site.pool._next}/1"), Started
    )
    assert site.pool.live == []


async def test_a_state_that_was_lost_is_no_server(site: Site, launcher: Path) -> None:
    user = await running(site)
    key = user.spawners[""]._key
    user.orm_spawners[""].state = {}
    site.hub.db.commit()
    spawner = restart_hub(user)
    assert await spawner.poll() == 0
    await Attempts.of(str(launcher), site.settings).end(key, 0)


# A launcher that is away


async def test_unknown_is_not_gone(site: Site, launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = await running(site)
    spawner = user.spawners[""]

    async def away(_self: Attempts, _key: str) -> None:
        raise EngineError("The launcher does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(Attempts, "find", away)
        assert await spawner.poll() is None
        spawner._pid = 0
        assert await spawner.poll() is None
        spawner._pid, spawner._starttime = os.getpid(), 1
        assert await spawner.poll() == 0


async def test_a_killed_launcher_is_waited_for(
    site: Site, launcher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "FIND_S", 0.2)
    user = await running(site)
    spawner = user.spawners[""]
    attempts = spawner.attempts
    assert attempts._engine is not None
    os.kill(attempts._engine._link.hello["pid"], signal.SIGKILL)
    assert await spawner.poll() is None
    monkeypatch.setattr(attempts_module, "FIND_S", 10.0)
    await user.stop("")  # by the launcher that the service has started meanwhile
    assert not isinstance(await attempts.find(f"{site.pool._next}/1"), Started)


async def test_the_real_single_user_server(site: Site, launcher: Path) -> None:
    site.settings["config"].LauncherSpawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
    site.settings["config"].Launched.args = ["--allow-root"]
    site.settings["config"].Launched.http_timeout = 60
    site.settings["slow_spawn_timeout"] = 60
    user = await running(site)
    spawner = user.spawners[""]
    async with aiohttp.ClientSession() as session, session.get(spawner.server.url + "api") as reply:
        assert reply.headers["X-JupyterHub-Version"]
    log = (launcher / "jobs" / str(site.pool._next)).rglob("log")
    assert any("Jupyter Server" in path.read_text(errors="replace") for path in log)
    assert (await site.api(user, "DELETE"))[0] in (202, 204)
    await site.settled(user)
    assert site.pool.live == []
