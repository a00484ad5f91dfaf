"""A real service, in a thread or in a process of its own, and a client that says what it sent and got."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.errors import ServiceDown
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.commands.demo.hub import end_jobs
from jupyter_gpupool.engines.base import Started, WorkSpec
from jupyter_gpupool.engines.local.engine import LocalEngine
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.main import run
from jupyter_gpupool.service.scopes import ADMINISTRATOR
from tests.service.fake_engine import Clock, FakeEngine
from tests.service.granting import Pool

ENDED = ("completed", "failed", "cancelled", "timed_out")
BASIC = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def error(self) -> dict[str, Any]:
        return self.body["error"]


class Caller:
    """What a test says to a service."""

    BASIC = BASIC

    def __init__(self, home: Home, *, url: str = "", token: str | None = None):
        self.home = home
        self._connection = Connection(url or home.url(), token=token, pauses=())

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = self._connection.request(method, path, data, names)
        is_json = reply.headers.get("content-type") == "application/json" and reply.body
        return Answer(reply.status, json.loads(reply.body) if is_json else reply.body, dict(reply.headers))

    @staticmethod
    def command(shell: str = "true", **more: Any) -> dict[str, Any]:
        """Return the body of a submit of a shell command on one card."""
        body = {
            "kind": "command",
            "entry": {"argv": ["sh", "-c", shell]},
            "resources": {"gpus": 1, "cpus": 1, "mem": "256MiB"},
            "time": "1h",
            "grace": "1s",
            "workdir": "/",
            "environment": BASIC,
        }
        return body | more

    def submit(self, shell: str, **more: Any) -> dict[str, Any]:
        """Queue a shell command on one card; it must be accepted."""
        answer = self("POST", "jobs", self.command(shell, **more))
        assert answer.status == 201, answer
        return answer.body

    def job(self, id: int) -> dict[str, Any]:
        answer = self("GET", f"jobs/{id}")
        assert answer.status == 200, answer
        return answer.body

    def wait(self, id: int, *states: str, patience: float = 20) -> dict[str, Any]:
        """Wait until a job is in one of `states` (ended, if none is given)."""
        wanted = states or ENDED
        give_up = time.monotonic() + patience
        while (job := self.job(id))["state"] not in wanted:
            assert time.monotonic() < give_up, job
            time.sleep(0.02)
        return job

    def log(self, id: int, **query: int) -> bytes:
        words = "&".join(f"{name}={value}" for name, value in query.items())
        return self("GET", f"jobs/{id}/logs?{words}").body

    def upload(self, files: dict[str, str]) -> str:
        """Send a snapshot and return its digest."""
        data = tar(files)
        digest = hashlib.sha256(data).hexdigest()
        answer = self("PUT", f"snapshots/{digest}", data)
        assert answer.status == 201, answer
        return digest


def tar(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(files[name].encode()), 0o644
            archive.addfile(info, io.BytesIO(files[name].encode()))
    return buffer.getvalue()


@dataclass
class Threaded:
    """A service in a thread of the test's process."""

    config: ServiceConfig
    parts: dict[str, Any]

    def __post_init__(self) -> None:
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        if self._error:
            raise self._error

    def _serve(self) -> None:
        try:
            asyncio.run(run(self.config, on_ready=self._ready.set, **self.parts))
        except BaseException as error:
            self._error = error
            self._ready.set()

    def stop(self, *, keep_jobs: bool = False) -> None:
        caller = Caller(self.config.home)
        with contextlib.suppress(ServiceDown):
            assert caller("POST", "shutdown", {"keep_jobs": keep_jobs}).status == 200
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self._error is None, self._error


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a short path."""
    folder = tmp_path / "h"
    folder.mkdir(mode=0o700)
    return Home(folder)


@pytest.fixture
def clock() -> Clock:
    """The time, which stands still until the test moves it on."""
    return Clock()


@pytest.fixture
def engine(home: Home) -> FakeEngine:
    """An engine that does as the test says."""
    return FakeEngine(home.path / "jobs")


@pytest.fixture(scope="session")
def caller() -> type[Caller]:
    """Who speaks to a service that a test has started by itself."""
    return Caller


Start = Callable[..., Caller]


@contextlib.contextmanager
def serving(home: Home) -> Iterator[Start]:
    running: list[Threaded] = []

    def begin(
        pool: str = "1x2x8GiB", policy: str | None = None, parts: dict[str, Any] | None = None, **options: Any
    ) -> Caller:
        if policy is not None:
            (home.path / "policy.yaml").write_text(policy)
        running.append(Threaded(ServiceConfig(home=home, simulate=pool, **options), parts or {}))
        return Caller(home)

    yield begin
    for service in running:
        service.stop()


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    """Start a service in this process: a pool, the text of a policy file, unusual parts."""
    with serving(home) as begin:
        yield begin


@pytest.fixture(scope="module")
def start_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a service that all tests of a module share, because they change nothing."""
    with serving(Home(tmp_path_factory.mktemp("shared"))) as begin:
        yield begin


class Process:
    """A service in a process of its own, which can be killed."""

    SERVE = ("-m", "jupyter_gpupool.app", "serve", "--allow-root")

    def __init__(self, home: Home, pool: str, program: Sequence[str] = SERVE, **environment: str):
        self.home = home
        self.call = Caller(home)
        with open(home.path / "test.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program],
                env={**os.environ, "GPUPOOL_HOME": str(home.path), "GPUPOOL_SIMULATE": pool, **environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        give_up = time.monotonic() + 60
        while True:
            try:
                assert self.call("GET", "whoami").status == 200
                return
            except Exception:
                said = (home.path / "test.log").read_text()
                assert self.process.poll() is None, said
                assert time.monotonic() < give_up, said
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, *, keep_jobs: bool = False) -> None:
        if self.process.poll() is None:
            self.call("POST", "shutdown", {"keep_jobs": keep_jobs})
            self.process.wait(30)


@pytest.fixture
def spawn(home: Home) -> Iterator[Callable[..., Process]]:
    """Start a service in a process of its own."""
    running: list[Process] = []

    def begin(pool: str = "1x1x8GiB", **options: Any) -> Process:
        running.append(Process(home, pool, **options))
        return running[-1]

    yield begin
    left = bool(running) and running[-1].process.poll() is not None
    for service in running:
        service.stop()
    if left:  # it ended by itself, or was killed
        asyncio.run(end_jobs(home.path))


@pytest.fixture(scope="module")
def shared_pool(start_once: Start) -> Pool:
    """Start a pool for grants that the tests of a module share."""
    return Pool(start_once)


@pytest.fixture
def pool(shared_pool: Pool) -> Iterator[Pool]:
    """Give a pool for grants, in which nothing is left by another test."""
    yield shared_pool
    shared_pool.clear()


def spawner(peer: Peer) -> Identity:
    """Take whoever connects for the Hub's spawner, who is also an administrator."""
    return Identity("root", ADMINISTRATOR | {"spawn"}, peer.uid, peer.pid)


class HubSide:
    """What a Hub's spawner does: asks the service, and starts servers through the launcher."""

    def __init__(self, call: Caller):
        self.call = call
        self.home = call.home

    def ask(self, user: str = "ada", server: str = "", **more: Any) -> Answer:
        """Ask for the lease of a server."""
        body = {"user": user, "server": server, "groups": ["team"], "version": __version__} | more
        return self.call("POST", "spawns", body)

    def lease(self, id: int, wait: int = 0) -> dict[str, Any]:
        answer = self.call("GET", f"spawns/{id}?wait={wait}")
        assert answer.status == 200, answer
        return answer.body["lease"]

    def choices(self, user: str = "ada", groups: str = "team") -> dict[str, Any]:
        answer = self.call("GET", f"spawns/choices?user={user}&groups={groups}")
        assert answer.status == 200, answer
        return answer.body

    def start(self, work: dict[str, Any], shell: str = "exec sleep 100") -> None:
        """Start a server on its lease."""
        given = {name: work[name] for name in work if name != "user"}
        spec = WorkSpec(
            kind="server",
            argv=("sh", "-c", shell),
            environment=BASIC,
            workdir="/",
            snapshot=None,
            snapshot_sha256=None,
            owner="ada",
            **given,
        )
        self._with_launcher(lambda engine: engine.start(spec))

    def kill(self, key: str) -> None:
        """End a server by itself, whatever the service thinks."""
        self._with_launcher(lambda engine: engine.stop(key, cause="cancel", grace_s=0))

    def running(self) -> set[str]:
        """Return the attempts that run."""
        found = self._with_launcher(lambda engine: engine.list())
        return {attempt.key for attempt in found if isinstance(attempt, Started)}

    def _with_launcher(self, use: Callable[[LocalEngine], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            engine = LocalEngine(self.home.path)
            await engine.open(lambda end: None)
            try:
                return await use(engine)
            finally:
                await engine.close()

        return asyncio.run(ask())


@pytest.fixture
def hub_side(start: Start) -> Callable[..., HubSide]:
    """Start a service in this process that takes the test for its Hub's spawner."""

    def begin(cards: str = "1x2x8GiB", policy: str | None = None, **parts: Any) -> HubSide:
        return HubSide(start(cards, policy, parts={"identify": spawner} | parts))

    return begin


@pytest.fixture(scope="session")
def as_hub() -> type[HubSide]:
    """Speak as a Hub's spawner to a service that a test has started by itself."""
    return HubSide
