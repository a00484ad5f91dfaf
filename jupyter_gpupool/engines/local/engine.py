"""The local engine: the service's side of the launcher.

Owns: one connection to the launcher of this home, starting a launcher where there is none, coming
back after it was killed, and asking again what was asked meanwhile. Never: a job's process or files.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.peercred import peer_of
from jupyter_gpupool.engines.base import (
    Ended,
    EngineError,
    JobFiles,
    OnEvent,
    Started,
    StopCause,
    Survival,
    UnansweredError,
    WorkSpec,
)
from jupyter_gpupool.engines.local.boot import VARIABLE, boot_id
from jupyter_gpupool.engines.local.files import DirectFiles, EngineFiles, LauncherFiles
from jupyter_gpupool.engines.local.protocol import (
    MAX_LINE,
    encode,
    ended_from_json,
    open_run_directory,
    report_from_json,
    socket_path,
)

_DAEMON = "jupyter_gpupool.engines.local.daemon"
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
_START, _RESTART = "systemctl start gpupool-launcher", "systemctl restart gpupool-launcher"
_ANSWER_S, _LOOK_S = 30.0, 0.05
_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

log = logging.getLogger(__name__)


class LocalEngine:
    """Runs work on this host through the launcher of `home`.

    Every request is safe to repeat, so one whose answer was lost with the launcher is asked again
    of the next. After such a change the ends known to the new launcher are reported once more.

    Parameters
    ----------
    home : Path
        The launcher's state folder.
    boot : str, optional
        Identity of this boot of the machine; None = ask the kernel.
    may_start : bool
        Whether to start a launcher where there is none; False where the system runs it.
    """

    def __init__(self, home: Path, *, boot: str | None = None, may_start: bool = True) -> None:
        self._files = EngineFiles(DirectFiles(home / "jobs"))
        self._home = home
        self._boot = boot or boot_id()
        self._may_start = may_start
        self._on_event: OnEvent | None = None
        self._link: _Link | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._survival = Survival(False, "The launcher has not been reached yet.")

    @property
    def files(self) -> JobFiles:
        """What jobs write; a launcher of the system's opens it for us."""
        return self._files

    @property
    def privileged(self) -> bool:
        """Whether the launcher is root's: work can run as accounts; known once `open` has returned."""
        return self._link is not None and bool(self._link.hello["root"])

    @property
    def survival(self) -> Survival:
        """What the life of a job depends on here; known once `open` has returned."""
        return self._survival

    async def open(self, on_event: OnEvent) -> None:
        """Connect to the launcher, starting it if there is none.

        Raises
        ------
        EngineError
            There is none and none can be started.
        """
        self._on_event = on_event
        await self._connect()
        self._keeper = asyncio.create_task(self._keep_connected())

    async def close(self) -> None:
        """Hang up; jobs and launcher go on."""
        keeper, self._keeper = self._keeper, None
        if keeper:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
        if self._link:
            await self._link.close()

    async def start(self, spec: WorkSpec) -> Started:
        """Run `spec`; see `Engine.start`."""
        report = report_from_json(await self._ask("start", spec=_as_dict(spec)))
        assert isinstance(report, Started)
        return report

    async def stop(self, key: str, *, cause: StopCause, grace_s: int) -> None:
        """Ask the job to end; see `Engine.stop`."""
        await self._ask("stop", key=key, cause=cause, grace_s=grace_s)

    async def extend(self, key: str, limit_s: int) -> bool:
        """Let an attempt run longer; see `Engine.extend`."""
        return bool(await self._ask("extend", key=key, limit_s=limit_s))

    async def list(self) -> list[Started | Ended]:
        """Everything that was started and is not forgotten."""
        return [report_from_json(report) for report in await self._ask("list")]

    async def forget(self, key: str) -> None:
        """Drop an end that was recorded elsewhere."""
        await self._ask("forget", key=key)

    async def left(self, key: str) -> Sequence[int]:
        """The processes of an attempt that are left, even of one whose record was lost."""
        return [int(pid) for pid in await self._ask("left", key=key)]

    async def shutdown(self, kill_jobs: bool, *, grace_s: int = 2) -> None:
        """Close, and let the launcher leave: at once with its jobs, or when the last one has ended.

        With `kill_jobs` no process of pool or jobs is left when this returns. A launcher that is not
        ours to start is not ours to end either.
        """
        if kill_jobs:
            for report in await self.list():
                if isinstance(report, Started):
                    await self.stop(report.key, cause="cancel", grace_s=grace_s)
        if not self._may_start:
            while kill_jobs and not all(map(_is_over, await self.list())):
                await asyncio.sleep(_LOOK_S)
            await self.close()
            return
        launcher = self._link.process() if self._link else None
        await self._ask("retire")
        await self.close()
        if kill_jobs and launcher is not None:
            await _ended(launcher)

    # The connection

    async def _ask(self, op: str, **fields: Any) -> Any:
        """Send one request and return its result, over as many connections as it takes."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                while self._keeper:
                    await self._connected.wait()
                    link = self._link
                    assert link is not None
                    with contextlib.suppress(ConnectionError):
                        return await link.ask(op, fields)
                    await asyncio.sleep(0)
        except TimeoutError:
            message = (
                f"The launcher did not answer within {_ANSWER_S:.0f} s; see {self._home / 'launcher.log'}."
            )
            raise UnansweredError(message) from None
        raise EngineError("The engine is closed.")

    async def _keep_connected(self) -> None:
        while True:
            assert self._link is not None
            await self._link.gone.wait()
            self._connected.clear()
            log.warning("The launcher is gone; the next one takes over its jobs.")
            await self._reconnect()
            with contextlib.suppress(EngineError):
                for report in await self.list():
                    if isinstance(report, Ended):
                        self._tell(report)

    async def _reconnect(self) -> None:
        for pause in itertools.chain(_RETRY_S, itertools.repeat(_RETRY_S[-1])):
            try:
                await self._connect()
                return
            except EngineError as error:
                log.warning("%s", error)
            await asyncio.sleep(pause)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                link = await self._reach() or await self._start_launcher()
                if link.hello["version"] != __version__ or link.hello["boot_id"] != self._boot:
                    link = await self._replace(link)
        except TimeoutError:
            message = f"The launcher of {self._home} did not answer within {_ANSWER_S:.0f} s."
            raise EngineError(message) from None
        self._survival = Survival(**link.hello["survival"])
        self._files.way = (
            LauncherFiles(self._home) if link.hello["system"] else DirectFiles(self._home / "jobs")
        )
        self._link = link
        self._connected.set()

    async def _replace(self, link: _Link) -> _Link:
        """Have a launcher of another version or boot leave, and start one that takes over its jobs."""
        if not self._may_start:
            await link.close()
            raise EngineError(
                f"The launcher in {self._home} is of version {link.hello['version']} and boot "
                f"{link.hello['boot_id']}, but {__version__} and {self._boot} are needed; its jobs go on "
                f"during: {_RESTART}."
            )
        with contextlib.suppress(ConnectionError):
            await link.ask("quit", {})
        await link.gone.wait()
        await link.close()
        return await self._start_launcher()

    async def _reach(self) -> _Link | None:
        """Connect to a launcher that listens; None if there is none."""
        try:
            run_directory = open_run_directory(self._home, make=self._may_start)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EngineError(f"The folder {self._home / 'run'} cannot be used: {error.strerror}.") from None
        try:
            reader, writer = await asyncio.open_unix_connection(socket_path(run_directory), limit=MAX_LINE)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except PermissionError:
            raise EngineError(
                f"The launcher in {self._home} listens to another account than uid {os.geteuid()}."
            ) from None
        finally:
            os.close(run_directory)
        if peer_of(writer.get_extra_info("socket")).uid not in (os.geteuid(), 0):
            writer.close()
            raise EngineError(f"The launcher socket in {self._home / 'run'} belongs to another user.")
        link = _Link(reader, writer, self._tell)
        try:
            await link.read_hello()
        except ConnectionError:
            return None
        return link

    async def _start_launcher(self) -> _Link:
        if not self._may_start:
            raise EngineError(f"No launcher answers in {self._home}; start it: {_START}.")
        answer = await self._run_daemon()
        if answer.get("error"):
            raise EngineError(answer["error"])
        link = await self._reach()
        if link is None:
            raise EngineError(f"The launcher ended at once; see {self._home / 'launcher.log'}.")
        return link

    async def _run_daemon(self) -> dict[str, Any]:
        """Start the launcher's process and return what it says once it listens or has failed."""
        package_root = str(Path(__file__).parents[3])
        environment = {
            "PATH": os.defpath,
            "PYTHONPATH": package_root,
            "PYTHONUTF8": "1",
            VARIABLE: self._boot,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", _DAEMON, str(self._home),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env=environment,
        )  # fmt: skip
        said, complaint = await process.communicate()
        with contextlib.suppress(ValueError):
            answer = json.loads(said)
            if isinstance(answer, dict):
                return answer
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        return {"error": f"The launcher did not start: {last or 'it said nothing'}."}

    def _tell(self, end: Ended) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(end)
        except Exception:
            log.exception("What is to be done at the end of %s failed.", end.key)


class _Link:
    """One connection to one launcher; `gone` is set when it is over."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_end: OnEvent) -> None:
        self._reader = reader
        self._writer = writer
        self._on_end = on_end
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._task: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()
        self.hello: dict[str, Any] = {}

    async def read_hello(self) -> None:
        """Wait for the launcher's first line, then listen for the rest.

        Raises
        ------
        ConnectionError
            It hung up before it said anything.
        """
        line = await self._reader.readline()
        if not line:
            self._writer.close()
            raise ConnectionError
        self.hello = json.loads(line)
        self._task = asyncio.create_task(self._listen())

    async def ask(self, op: str, fields: dict[str, Any]) -> Any:
        """Send a request and wait for its result.

        Raises
        ------
        EngineError
            The launcher says that it cannot be done.
        ConnectionError
            The launcher is gone; whether it was done is not known.
        """
        if self.gone.is_set():
            raise ConnectionError
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(encode({"id": number, "op": op, **fields}))
        try:
            reply = await answer
        finally:
            self._waiting.pop(number, None)
        if "error" in reply:
            raise EngineError(reply["error"])
        return reply["result"]

    def process(self) -> int | None:
        """A pidfd of the launcher; None if it is gone."""
        with contextlib.suppress(OSError):
            return os.pidfd_open(self.hello["pid"])
        return None

    async def close(self) -> None:
        """Hang up."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                if message.get("event") == "ended":
                    self._on_end(ended_from_json(message["ended"]))
                elif (answer := self._waiting.get(message.get("id"))) and not answer.cancelled():
                    answer.set_result(message)
        except (ConnectionError, ValueError) as error:
            log.warning("The connection to the launcher broke: %s", error)
        finally:
            self.gone.set()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionError())


async def _ended(pidfd: int) -> None:
    """Wait for the end of a process, and close its `pidfd`."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _is_over(report: Started | Ended) -> bool:
    return isinstance(report, Ended) and report.tree_gone


def _as_dict(spec: WorkSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__slots__}
