"""A real Hub without its proxy, a scripted pool behind a real socket, and people who log in."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from jupyterhub import metrics, orm
from jupyterhub.proxy import Proxy
from jupyterhub.roles import assign_default_roles
from jupyterhub.tests.mocking import MockHub
from traitlets.config import Config

from jupyter_gpupool.engines.local.engine import LocalEngine
from tests.spawner import backends
from tests.spawner.scripted_pool import TOKEN, ScriptedPool

_NUMBERS = itertools.count(1)


class NoProxy(Proxy):
    """Routes are noted; nobody needs them here."""

    should_start = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._routes: dict[str, dict[str, Any]] = {}

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        self._routes[routespec] = {"routespec": routespec, "target": target, "data": data}

    async def delete_route(self, routespec: str) -> None:
        self._routes.pop(routespec, None)

    async def get_all_routes(self) -> dict[str, dict[str, Any]]:
        return self._routes


class Site:
    """The Hub, and what a test does with it."""

    def __init__(self, hub: MockHub, pool: ScriptedPool, folder: Path) -> None:
        self.hub, self.pool, self.folder = hub, pool, folder
        self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())

    @property
    def url(self) -> str:
        return self.hub.hub.url.rstrip("/")

    @property
    def settings(self) -> dict[str, Any]:
        return self.hub.tornado_settings

    def use(self, spawner: type, **config: Any) -> None:
        """Start servers with `spawner` from now on."""
        self.settings["spawner_class"] = spawner
        traits = {"pool_url": self.pool.url, "pool_token": TOKEN, **config}
        self.settings["config"] = Config({"GpuPoolMixin": traits})

    def configure(self, **config: Any) -> None:
        self.settings["config"].GpuPoolMixin.update(config)

    def user(self, *groups: str) -> Any:
        """A new user of `groups`."""
        db = self.hub.db
        found = orm.User(name=f"user{next(_NUMBERS)}")
        db.add(found)
        db.commit()
        metrics.TOTAL_USERS.inc()
        assign_default_roles(db, entity=found)
        user = self.hub.users[found.id]
        self.put_into(user, *groups)
        return user

    def put_into(self, user: Any, *groups: str) -> None:
        db = self.hub.db
        rows = [orm.Group.find(db, name) or orm.Group(name=name) for name in groups]
        db.add_all(rows)
        user.orm_user.groups = rows
        db.commit()

    async def api(self, user: Any, method: str, path: str = "server", body: Any = None) -> tuple[int, str]:
        """Call the Hub's REST API as `user` about one of the user's servers."""
        token = user.new_api_token()
        async with self._http.request(
            method,
            f"{self.url}/api/users/{user.name}/{path}",
            json=body,
            headers={"Authorization": f"token {token}"},
        ) as reply:
            return reply.status, await reply.text()

    async def start(self, user: Any, options: Any = None, name: str = "") -> tuple[int, str]:
        """Start a server over REST."""
        body = None if options is None else {"user_options": options}
        path = f"servers/{name}" if name else "server"
        return await self.api(user, "POST", path, body)

    async def browser(self, user: Any) -> aiohttp.ClientSession:
        """A browser in which `user` is logged in."""
        session = aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True), headers={"Sec-Fetch-Mode": "navigate"}
        )
        await (await session.get(f"{self.url}/login")).text()
        await session.post(
            f"{self.url}/login",
            params={"_xsrf": self.xsrf(session)},
            data={"username": user.name, "password": user.name},
            allow_redirects=False,
        )
        await (await session.get(f"{self.url}/home")).text()
        return session

    def xsrf(self, session: aiohttp.ClientSession) -> str:
        return next(cookie.value for cookie in session.cookie_jar if cookie.key == "_xsrf")

    async def until(self, look: Callable[[], Any], within: float = 20.0) -> Any:
        """What `look` returns once it is true."""
        give_up = time.monotonic() + within
        while not (found := look()):
            assert time.monotonic() < give_up, "it did not happen"
            await asyncio.sleep(0.01)
        return found

    async def settled(self, user: Any, name: str = "") -> Any:
        """The spawner once nothing is pending."""
        await self.until(lambda: name not in user.spawners or not user.spawners[name].pending)
        return user.spawners.get(name)

    async def end_all(self) -> None:
        for orm_user in self.hub.db.query(orm.User):
            user = self.hub.users[orm_user]
            for name, spawner in list(user.spawners.items()):
                if spawner._spawn_future and not spawner._spawn_future.done():
                    spawner._spawn_future.cancel()
                    await asyncio.wait([spawner._spawn_future])
                if spawner.active or spawner.server:
                    await user.stop(name)
                user.spawners.pop(name, None)

    async def close(self) -> None:
        await self._http.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def hub() -> AsyncIterator[MockHub]:
    config = Config()
    config.JupyterHub.proxy_class = NoProxy
    config.JupyterHub.bind_url = "http://127.0.0.1:8000/"
    config.JupyterHub.allow_named_servers = True
    config.JupyterHub.cleanup_servers = True
    config.JupyterHub.cookie_secret = os.urandom(32)
    MockHub.clear_instance()
    hub = MockHub.instance(config=config)
    await hub.initialize([])
    await hub.start()
    yield hub
    hub.log.handlers = []
    MockHub.clear_instance()
    await hub.stop()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def endpoint() -> AsyncIterator[tuple[str, int]]:
    """Something that answers 200, as a started server does."""
    app = web.Application()
    app.router.add_get("/{path:.*}", _ok)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][:2]
    await runner.cleanup()


async def _ok(_request: web.Request) -> web.Response:
    return web.Response(headers={"X-JupyterHub-Version": "6.1.1"})


@pytest_asyncio.fixture(loop_scope="module")
async def site(hub: MockHub, endpoint: tuple[str, int], tmp_path: Path) -> AsyncIterator[Site]:
    """The Hub with a pool that has room, and a stub in the place of servers."""
    folder = Path(tempfile.mkdtemp(prefix="gpupool-test-", dir="/tmp"))
    pool = ScriptedPool(folder)
    await pool.start()
    site = Site(hub, pool, tmp_path)
    stub = backends.StubBackend
    stub.endpoint, stub.fails, stub.hangs = endpoint, None, False
    stub.starts.clear()
    stub.stops.clear()
    site.use(backends.PooledStub)
    limits = {
        name: hub.tornado_settings.get(name) for name in ("slow_spawn_timeout", "concurrent_spawn_limit")
    }
    yield site
    await site.end_all()
    hub.tornado_settings.update(limits)
    await site.close()
    await pool.stop()
    shutil.rmtree(folder)


@pytest_asyncio.fixture(loop_scope="module")
async def launcher(site: Site) -> AsyncIterator[Path]:
    """A home whose launcher runs, as the service has started it; no process of it is left."""
    home = site.pool.path.parent
    engine = LocalEngine(home)
    await engine.open(lambda _end: None)
    site.use(backends.Launched)
    site.settings["config"].LauncherSpawner = Config(
        {
            "launcher_home": str(home),
            "cmd": backends.COMMAND,
            "home_dir_template": f"{home}/home/{{username}}",
        }
    )
    yield home
    await site.end_all()
    for link in site.settings.pop("gpupool_launchers", {}).values():
        await link.close()
    await engine.shutdown(kill_jobs=True)


@pytest.fixture
def stub() -> type[backends.StubBackend]:
    """The stub of servers."""
    return backends.StubBackend
