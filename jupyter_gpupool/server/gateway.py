"""The way from Jupyter Server to the pool's service, off the event loop.

Owns: finding (and so starting) the service once, and the threads in which its answers are awaited.
Never: what is asked, or what an answer means.

The first request starts the service. After that, one that ended on purpose (told to, or with nothing
live; it removed its socket) stays away until somebody asks for it, whatever a browser polls; one that
crashed left its socket behind, and comes back with the next request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from jupyter_gpupool.client.errors import ServiceDown
from jupyter_gpupool.client.find import find_pool
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.transport import Connection, Reply

THREADS = 8
PATIENCE = 0.5  # seconds that a request waits for the service before it is told "starting"


class Starting(ServiceDown):
    """The service has been asked to start, and does not answer yet."""

    def __init__(self) -> None:
        super().__init__("The pool's service is starting.", hint="This takes a few seconds.")
        self.code = "starting"


class NotRunning(ServiceDown):
    """The service ended on purpose."""

    def __init__(self) -> None:
        super().__init__(
            "The pool's service is not running: it was stopped, or ended because nothing was live.",
            hint="Start it with: jupyter gpupool serve",
        )
        self.code = "not_running"


class Gateway:
    """One Jupyter server's connection to its pool.

    Parameters
    ----------
    find
        Returns a connection, starting the service if need be; runs in a thread.
    patience
        Seconds that a request waits for `find`.
    """

    def __init__(self, find: Callable[[], Connection] | None = None, *, patience: float = PATIENCE) -> None:
        self._find = find or _find
        self._patience = patience
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="gpupool")
        self._finding: asyncio.Future[Connection] | None = None

    async def request(self, method: str, path: str) -> Reply:
        """Send one request that may arrive twice, and return the service's answer whatever its status.

        Raises
        ------
        PoolError
            There is no service to ask: it is starting, down, or not configured.
        """
        if self._finding is None or (self._failed() and _socket().exists()):
            self._look()
        connection = await self._found()
        if _has_ended(connection):
            raise NotRunning
        ask = partial(connection.request, method, path, repeatable=True)
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    async def start(self) -> None:
        """Find the service again, and so start it where it is not running.

        Raises
        ------
        PoolError
            It cannot be started, or is not there yet.
        """
        if self._finding is None or self._failed() or self._ended():
            self._look()
        await self._found()

    def _look(self) -> None:
        self._finding = asyncio.get_running_loop().run_in_executor(self._threads, self._find)

    async def _found(self) -> Connection:
        assert self._finding is not None
        await asyncio.wait({self._finding}, timeout=self._patience)
        if not self._finding.done():
            raise Starting
        return self._finding.result()

    def _failed(self) -> bool:
        return self._finding is not None and self._finding.done() and self._finding.exception() is not None

    def _ended(self) -> bool:
        return self._finding is not None and self._finding.done() and _has_ended(self._finding.result())


def _find() -> Connection:
    return find_pool(os.environ)


def _socket() -> Path:
    return Home.of(os.environ).service_socket


def _has_ended(connection: Connection) -> bool:
    scheme, _, path = connection.url.partition(":")
    return scheme == "unix" and not os.path.exists(path)
