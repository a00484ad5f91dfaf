"""Engines for tests: a home each, work that is small, and a check that nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import selectors
import signal
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from jupyter_gpupool.engines.base import Ended, EngineError, Started, WorkSpec
from jupyter_gpupool.engines.local import daemon
from jupyter_gpupool.engines.local.boot import boot_id
from jupyter_gpupool.engines.local.cgroups import Subtree
from jupyter_gpupool.engines.local.engine import LocalEngine
from jupyter_gpupool.engines.local.identity import Account, drop
from jupyter_gpupool.engines.local.proctree import all_pids, descendants, look_at
from jupyter_gpupool.engines.local.protocol import open_run_directory
from tests.conftest_accounts import Accounts, SystemLauncher

T = TypeVar("T")
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


async def eventually(look: Callable[[], T], within: float = 20.0) -> T:
    """What `look` returns once it is true."""
    give_up = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < give_up, "it did not happen"
        await asyncio.sleep(0.01)
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def exists(pid: int) -> bool:
    """Whether a live process has this id."""
    found = look_at(pid)
    return found is not None and not found.zombie


class Bench:
    """A home, the engine that works in it, and the ends that it reported."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.engine = LocalEngine(home)
        self.ends: list[Ended] = []
        self._news = asyncio.Event()
        self._jobs = 0

    async def open(self) -> None:
        await self.engine.open(self.hear)

    def hear(self, end: Ended) -> None:
        self.ends.append(end)
        self._news.set()

    def spec(self, *argv: str, **changes: object) -> WorkSpec:
        self._jobs += 1
        job = int(changes.get("job", self._jobs))  # type: ignore[call-overload]
        values: dict[str, object] = {
            "key": f"{job}/1",
            "job": job,
            "attempt": 1,
            "kind": "command",
            "argv": argv,
            "environment": {"PATH": os.environ["PATH"]},
            "workdir": str(self.home),
            "snapshot": None,
            "snapshot_sha256": None,
            "folder": str(self.home / "jobs" / str(job)),
            "limit_s": 60,
            "grace_s": 1,
            "cpus_milli": 0,
            "memory_mib": 0,
            "owner": "ada",
        }
        return WorkSpec(**{**values, **changes})  # type: ignore[arg-type]

    def python(self, code: str, **changes: object) -> WorkSpec:
        return self.spec(PYTHON, "-S", "-c", code, **changes)

    async def run(self, spec: WorkSpec) -> Ended:
        await self.engine.start(spec)
        return await self.end_of(spec.key)

    async def end_of(self, key: str) -> Ended:
        async with asyncio.timeout(20):
            while True:
                self._news.clear()
                for end in self.ends:
                    if end.key == key:
                        return end
                await self._news.wait()

    async def settled(self, key: str) -> Ended:
        """The end of `key` as the engine lists it, with nothing of it left."""
        async with asyncio.timeout(20):
            while True:
                for report in await self.engine.list():
                    if report.key == key and isinstance(report, Ended) and report.tree_gone:
                        return report
                await asyncio.sleep(0.02)

    def attempt(self, spec: WorkSpec) -> Path:
        return Path(spec.folder) / str(spec.attempt)

    def log(self, spec: WorkSpec) -> str:
        return (self.attempt(spec) / "log").read_text()

    async def logged(self, spec: WorkSpec, lines: int) -> list[str]:
        """The log's lines, once there are that many."""

        def enough() -> list[str] | None:
            path = self.attempt(spec) / "log"
            found = path.read_text().splitlines() if path.exists() else []
            return found if len(found) >= lines else None

        return await eventually(enough)

    def launcher_pid(self) -> int:
        """The launcher: of the processes that name this home, the one that is nobody's child."""
        named = [pid for pid in all_pids() if str(self.home) in command_line(pid)]
        return next(pid for pid in named if (found := look_at(pid)) and found.parent not in named)

    def runner_pid(self, spec: WorkSpec) -> int:
        return int(json.loads((self.attempt(spec) / "runner.json").read_text())["pid"])

    def start_of(self, spec: WorkSpec) -> float:
        """When the attempt was let go, in monotonic seconds."""
        return float(json.loads((self.attempt(spec) / "runner.json").read_text())["clock"])

    def job_pids(self, spec: WorkSpec) -> set[int]:
        return descendants(self.runner_pid(spec))

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def children(self, pid: int) -> list[int]:
        return [child for child in all_pids() if (found := look_at(child)) and found.parent == pid]

    async def until(self, look: Callable[[], T]) -> T:
        return await eventually(look)

    def exists(self, pid: int) -> bool:
        return exists(pid)

    async def gone(self, *pids: int) -> None:
        """Wait until none of `pids` is a live process."""
        await eventually(lambda: not any(map(exists, pids)))

    def snapshot(self, files: dict[str, str]) -> dict[str, str]:
        """Tar `files`; returns the two fields of a specification that name it."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        return self.tar(buffer.getvalue())

    def tar(self, content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        path = self.home / f"{digest}.tar"
        path.write_bytes(content)
        return {"snapshot": str(path), "snapshot_sha256": digest}


def left_behind(home: Path) -> list[str]:
    """Live processes of the pool at `home`, and its control groups."""
    mark = os.fsencode(str(home))
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            of_job = any(item.startswith(b"GPUPOOL_ATTEMPT_DIR=" + mark) for item in environment)
            if exists(pid) and (of_job or str(home) in command_line(pid)) and pid != os.getpid():
                found.append(f"{pid} {command_line(pid)}")
    subtree = Subtree.at(home)
    for directory in (subtree.held, *subtree.limits):
        if directory:
            found.extend(str(path) for path in directory.glob("*/"))
            with contextlib.suppress(OSError):
                directory.rmdir()
    return found


class SystemBench(Bench):
    """A bench over the system's launcher, whose work runs as ada's account unless it says otherwise."""

    def __init__(self, launcher: SystemLauncher, accounts: Accounts) -> None:
        super().__init__(launcher.state)
        self.engine = LocalEngine(launcher.state, may_start=False)
        self.launcher = launcher
        self.accounts = accounts

    def spec(self, *argv: str, **changes: object) -> WorkSpec:
        ada = self.accounts.ada
        return super().spec(*argv, **{"user": ada.name, "workdir": ada.home, **changes})

    def ids(self) -> list[str]:
        """What a process of ada's account says that it is."""
        ada = self.accounts.ada
        return [str((ada.uid,) * 3), str((ada.gid,) * 3), str(sorted(ada.groups))]

    def as_account(self, account: Account, do: Callable[[], object]) -> str:
        """What `do` returns, or how it failed, in a process of `account`."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                drop(account)
                os.write(writer, str(do()).encode())
            except BaseException as error:
                os.write(writer, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader, "rb") as file:
            said = file.read().decode()
        os.waitpid(child, 0)
        return said


@pytest_asyncio.fixture
async def system(system_launcher: SystemLauncher, accounts: Accounts) -> AsyncIterator[SystemBench]:
    """A bench over the system's launcher, with an open engine."""
    bench = SystemBench(system_launcher, accounts)
    await bench.open()
    yield bench
    with contextlib.suppress(EngineError):
        await bench.engine.close()


async def end_everything(bench: Bench) -> None:
    """End the pool as its owner would, through whichever launcher is there."""
    with contextlib.suppress(EngineError):
        await bench.engine.close()
    last = LocalEngine(bench.home)
    await last.open(lambda end: None)
    for report in await last.list():
        if isinstance(report, Started):
            await last.stop(report.key, cause="cancel", grace_s=0)
    await last.shutdown(True)


@contextlib.asynccontextmanager
async def bench_at(home: Path) -> AsyncIterator[Bench]:
    """A bench with an open engine; nothing of it is left at the end."""
    bench = Bench(home)
    await bench.open()
    try:
        yield bench
    finally:
        await end_everything(bench)
        await eventually(lambda: not left_behind(home), within=5)


@pytest.fixture
def make_bench() -> Callable[[Path], contextlib.AbstractAsyncContextManager[Bench]]:
    """Return what makes a bench elsewhere."""
    return bench_at


@pytest_asyncio.fixture
async def unopened(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench whose engine is not open yet."""
    bench = Bench(tmp_path)
    yield bench
    await end_everything(bench)
    await eventually(lambda: not left_behind(tmp_path), within=5)


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench with an open engine."""
    async with bench_at(tmp_path) as bench:
        yield bench


@pytest.fixture
def launch(unopened: Bench) -> Iterator[Callable[..., int]]:
    """Start a launcher in a fork of the test, so that a test can alter it; returns its pid."""
    started: list[int] = []

    def start(subtree: Subtree | None = None, alter: Callable[[], None] = lambda: None) -> int:
        ready, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                alter()
                run_directory = open_run_directory(unopened.home)
                daemon._be_the_only_one(run_directory)
                own = Subtree.at(unopened.home) if subtree is None else subtree
                own.enter("launcher")
                selector = selectors.DefaultSelector()
                launcher, peers = daemon.set_up(unopened.home, boot_id(), own, selector, run_directory)
                os.write(writer, b"r")
                daemon.serve(launcher, peers, selector)
                launcher.close()
            finally:
                os._exit(0)
        os.close(writer)
        assert os.read(ready, 1) == b"r"
        os.close(ready)
        started.append(pid)
        return pid

    yield start
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


@pytest_asyncio.fixture
async def bare(unopened: Bench, launch: Callable[..., int]) -> Bench:
    """A bench where no control group can be written."""
    launch(subtree=Subtree())
    await unopened.open()
    return unopened


@pytest.fixture(params=["bench", "bare"])
def either(request: pytest.FixtureRequest) -> Bench:
    """A bench as it is here, and one without control groups."""
    found: Bench = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def whole_tree(tmp_path: Path, require: Callable[[str], None]) -> None:
    """Needs a control group hierarchy that can be written; only root is promised one."""
    subtree = Subtree.at(tmp_path)
    if subtree.held is None:
        reason = "no control group hierarchy can be written here"
        if os.geteuid() == 0:
            require(reason)
        pytest.skip(reason)
    subtree.sweep()
