"""A spawner whose servers the launcher runs.

Owns: one server as an attempt of the launcher: in a control group of its own with its limits, as its user's
account, ended with every process it left, alive when the Hub is not. Never: whether there is room for it.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from jupyterhub.spawner import Spawner
from jupyterhub.utils import can_connect, fmt_ip_url, random_port
from traitlets import Unicode, default

from jupyter_gpupool import client
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.peers import check_port
from jupyter_gpupool.engines.base import Ended, EngineError, Started, WorkSpec
from jupyter_gpupool.engines.local.proctree import starttime
from jupyter_gpupool.spawner.answers import Work
from jupyter_gpupool.spawner.attempts import Attempts
from jupyter_gpupool.spawner.refusal import Refusal

_MIB = 1 << 20
_STARTUP = str(Path(client.__file__).with_name("startup.py"))
_MOST_WORDS = 300
_CONNECT_S = 5.0
_KNOCK_S = 0.1


class LauncherSpawner(Spawner):  # type: ignore[misc]
    """Runs servers through the pool's launcher; `work` must be known before `start`."""

    launcher_home = Unicode(
        help="""
        The launcher's folder: ``run/launcher.sock`` is in it. Default: ``GPUPOOL_LAUNCHER``, else
        the pool's home.
        """
    ).tag(config=True)

    home_dir_template = Unicode(
        help="""
        Where users have their files if all servers run as one account (``run_as: service``), such as
        ``/srv/homes/{username}``. Servers that run as their users' accounts have those accounts' homes.
        """
    ).tag(config=True)

    work: Work | None = None
    port: int

    @default("launcher_home")
    def _launcher_home_of_the_environment(self) -> str:
        return os.environ.get("GPUPOOL_LAUNCHER") or str(Home.of(os.environ).path)

    @default("env_keep")
    def _env_keep_of_a_local_server(self) -> list[str]:
        kept = "CONDA_DEFAULT_ENV CONDA_ROOT JUPYTERHUB_SINGLEUSER_APP LANG LC_ALL LD_LIBRARY_PATH PATH"
        return [*kept.split(), "PYTHONPATH", "VIRTUAL_ENV"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._key: str | None = None
        self._pid = 0
        self._starttime: int | None = None
        self._grace_s = 0

    @property
    def attempts(self) -> Attempts:
        """The launcher that runs this server."""
        return Attempts.of(self.launcher_home, self.user.settings)

    async def start(self) -> str:
        """Have the launcher start the server; return where it will listen.

        Raises
        ------
        Refusal
            The launcher is not there or refuses, or the server ends before it listens.
        """
        assert self.work is not None, "the lease of a server is known before it starts"
        if not self.port:
            self.port = random_port()
        self._key, self._grace_s = self.work.key, self.work.grace_s
        self._save_now()
        try:
            started = await self.attempts.start(self._spec(self.work))
        except EngineError as error:
            raise Refusal(str(error), reason="launcher") from None
        self._pid, self._starttime = started.pid, starttime(started.pid)
        await self._until_it_listens(self.work)
        return self._url()

    async def _until_it_listens(self, work: Work) -> None:
        """Wait for the server, so that one which cannot start says why at once."""
        host = self.ip or "127.0.0.1"
        listens = asyncio.create_task(_until_it_accepts(host, self.port))
        ends = asyncio.create_task(self.attempts.ended(work.key))
        try:
            await asyncio.wait((listens, ends), return_when=asyncio.FIRST_COMPLETED)
            if ends.done():
                words = await self.attempts.last_words(work.job, work.attempt)
                raise Refusal(_ended_early(ends.result(), words), reason="exited")
            await listens
            await asyncio.to_thread(_check_listener, host, self.port, work.user)
        finally:
            listens.cancel()
            ends.cancel()

    def _save_now(self) -> None:
        """Write down what runs before it does, so that a Hub which dies here finds the server again."""
        if self.orm_spawner is not None:
            self.orm_spawner.state = self.get_state()
            self.user.db.commit()

    def _url(self) -> str:
        scheme = "https" if self.internal_ssl else "http"
        return f"{scheme}://{fmt_ip_url(self.ip or '127.0.0.1')}:{self.port}"

    async def get_url(self) -> str:
        """Return where the server listens, also if the Hub died before it could write that down."""
        url = urlsplit(await super().get_url())
        return cast(str, url._replace(netloc=urlsplit(self._url()).netloc).geturl())

    def _spec(self, work: Work) -> WorkSpec:
        home = self._home(work)
        return WorkSpec(
            key=work.key,
            job=work.job,
            attempt=work.attempt,
            kind="server",
            argv=(*self.cmd, *self.get_args()),
            environment={**self.get_env(), **self._who(work, home)},
            workdir=home,
            snapshot=None,
            snapshot_sha256=None,
            folder=work.folder,
            limit_s=work.limit_s,
            grace_s=work.grace_s,
            cpus_milli=work.cpus_milli,
            memory_mib=work.memory_mib,
            owner=self.user.name,
            entry={"server": self.name},
            user=work.user,
        )

    def _home(self, work: Work) -> str:
        """Return the folder in which the server starts."""
        if work.user is not None:
            try:
                return pwd.getpwnam(work.user).pw_dir
            except KeyError:
                raise Refusal(
                    f"This machine has no account {work.user}, so no server can run as it.",
                    reason="no_account",
                ) from None
        if not self.home_dir_template:
            return str(Path.home())
        if self.user.name in (".", "..") or "/" in self.user.name:
            raise Refusal(f"{self.user.name} cannot be the name of a folder.", reason="no_account")
        home = Path(self.format_string(self.home_dir_template))
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(home)

    def _who(self, work: Work, home: str) -> dict[str, str]:
        """Return who the server's processes are; for an account of its own, the launcher says that."""
        if work.user is not None:
            return {}
        return {"HOME": home, "USER": self.user.name, "LOGNAME": self.user.name, "SHELL": "/bin/sh"}

    def get_env(self) -> dict[str, str]:
        """Return the server's environment: its limits for those who show them, the magics for its kernels."""
        environment: dict[str, str] = super().get_env()
        environment.setdefault("PYTHONSTARTUP", _STARTUP)
        if self.work and self.work.memory_mib:
            environment.setdefault("MEM_LIMIT", str(self.work.memory_mib * _MIB))
        if self.work and self.work.cpus_milli:
            environment.setdefault("CPU_LIMIT", f"{self.work.cpus_milli / 1000:g}")
        return environment

    async def poll(self) -> int | None:
        """Return None while the server runs, else its exit code; without the launcher, what `/proc` shows."""
        if self._key is None:
            return 0
        try:
            report = await self.attempts.find(self._key)
        except EngineError as error:
            self.log.warning("%s: %s Looking for its process instead.", self._log_name, error)
            return None if self._seems_alive() else 0
        if isinstance(report, Started):
            return None
        return _exit_code(report)

    def _seems_alive(self) -> bool:
        """Whether the server's process lives, or nothing is known of it."""
        return not self._pid or starttime(self._pid) == self._starttime

    async def stop(self, now: bool = False) -> None:
        """End the server and every process that it left; return when all are gone."""
        if self._key is None:
            return
        try:
            await self.attempts.end(self._key, 0 if now else self._grace_s)
        except EngineError as error:
            self.log.error(
                "%s: %s The pool keeps its lease, and ends it when the launcher is back.",
                self._log_name,
                error,
            )

    def get_state(self) -> dict[str, Any]:
        """Return what a restarted Hub must know to find the server again."""
        state: dict[str, Any] = super().get_state()
        if self._key is not None:
            state |= {
                "key": self._key,
                "pid": self._pid,
                "starttime": self._starttime,
                "grace_s": self._grace_s,
                "port": self.port,
            }
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up a server that an earlier Hub process started."""
        super().load_state(state)
        if "key" in state:
            self._key, self._pid = state["key"], state["pid"]
            self._starttime, self._grace_s = state["starttime"], state["grace_s"]
            self.port = state["port"]

    def clear_state(self) -> None:
        """Forget the server."""
        super().clear_state()
        self._key, self._pid, self._starttime = None, 0, None
        self.work = None


async def _until_it_accepts(host: str, port: int) -> None:
    """Try a port of this host until something listens; its start timeout is the caller's."""
    while not can_connect(host, port):
        await asyncio.sleep(_KNOCK_S)


def _check_listener(host: str, port: int, account: str | None) -> None:
    """Refuse a port that a stranger took before the server did: the Hub would send its user there."""
    uid = os.geteuid() if account is None else pwd.getpwnam(account).pw_uid
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S) as connection:
            check_port(connection, {uid, 0})
    except Refused:
        message = f"Port {port}, which your server was to have, was taken by another account. Start it again."
        raise Refusal(message, reason="port_taken") from None


def _ended_early(end: Ended, last_words: str) -> str:
    """Say that a server could not start, and the last thing it said."""
    how = f"with exit code {end.exit_code}" if end.exit_code is not None else f"by signal {end.signal}"
    said = end.message or last_words
    quoted = f" The last it said: {said[:_MOST_WORDS]}" if said else ""
    memory = " It was out of memory." if end.oom else ""
    return f"Your server ended {how} before it listened.{memory}{quoted}"


def _exit_code(end: Ended | None) -> int:
    """Return the exit status of an end: 0 where nobody knows it any more, 1 of a signal."""
    if end is None:
        return 0
    return 1 if end.exit_code is None else end.exit_code
