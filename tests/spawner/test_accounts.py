"""Servers that run as their users' accounts, by root's launcher."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from traitlets.config import Config

from jupyter_gpupool.engines.base import Started
from jupyter_gpupool.engines.local.proctree import descendants
from jupyter_gpupool.spawner import attempts as attempts_module
from tests.conftest_accounts import Accounts, SystemLauncher
from tests.spawner.backends import SERVER, Launched
from tests.spawner.conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def as_users(
    site: Site, system_launcher: SystemLauncher, readable_python: Path
) -> AsyncIterator[SystemLauncher]:
    """A Hub whose servers root's launcher runs."""
    site.use(Launched)
    site.pool.folder = system_launcher.state / "jobs"
    site.settings["config"].LauncherSpawner = Config(
        {"launcher_home": str(system_launcher.state), "cmd": [str(readable_python), "-S", "-c", SERVER]}
    )
    yield system_launcher
    await site.end_all()
    for link in site.settings.pop("gpupool_launchers", {}).values():
        await link.close()


async def run_as(site: Site, account: str) -> tuple[int, str, Any]:
    site.pool.user = account
    user = site.user("vision")
    return *await site.start(user, {}), user


async def test_a_server_is_its_users(site: Site, as_users: SystemLauncher, accounts: Accounts) -> None:
    status, body, user = await run_as(site, accounts.ada.name)
    assert status == 201, body
    spawner = user.spawners[""]
    report = await spawner.attempts.find(spawner._key)
    assert isinstance(report, Started)
    (server,) = descendants(report.pid) - {report.pid}
    assert os.stat(f"/proc/{server}").st_uid == accounts.ada.uid
    assert os.readlink(f"/proc/{server}/cwd") == accounts.ada.home
    environment = dict(
        variable.split("=", 1)
        for variable in Path(f"/proc/{server}/environ").read_text().split("\0")
        if variable
    )
    assert (environment["HOME"], environment["USER"]) == (accounts.ada.home, accounts.ada.name)
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    assert (await site.api(user, "DELETE"))[0] == 204
    assert not os.path.exists(f"/proc/{server}")


async def test_what_a_server_says_last_is_read_through_the_launcher(
    site: Site, as_users: SystemLauncher, accounts: Accounts
) -> None:
    site.settings["config"].LauncherSpawner.cmd = ["sh", "-c", "echo no module jupyterhub; exit 2"]
    status, body, _ = await run_as(site, accounts.bob.name)
    assert status == 409
    assert "The last it said: no module jupyterhub" in json.loads(body)["message"]


@pytest.mark.parametrize("name", ["root", "daemon"])
async def test_accounts_that_are_nobodys_get_no_server(
    site: Site, as_users: SystemLauncher, name: str
) -> None:
    status, body, user = await run_as(site, name)
    assert status == 409
    assert name in json.loads(body)["message"]
    await site.settled(user)
    assert site.pool.live == []


async def test_the_launcher_is_killed_and_the_server_is_found_again(
    site: Site, as_users: SystemLauncher, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, body, user = await run_as(site, accounts.ada.name)
    assert status == 201, body
    spawner = user.spawners[""]
    as_users.kill()
    with monkeypatch.context() as patch:
        patch.setattr(attempts_module, "FIND_S", 0.2)
        assert await spawner.poll() is None
    await asyncio.to_thread(as_users.start)
    assert await spawner.poll() is None
    await user.stop("")
    assert site.pool.live == []
