"""The way from Jupyter Server to the pool's service, off the event loop.

Owns: finding (and so starting) the service once, and the threads in which its answers are awaited.
Never: what is asked, or what an answer means.

A pool that a Hub's administrator runs is only asked. The user's own service is started by the first request.
After that, one that ended on purpose (told to, or with nothing
live; it removed its socket) stays away until somebody asks for it, whatever a browser polls; one that
crashed left its socket behind, and comes back with the next request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jupyter_gpupool.client.address import UnixAddress
from jupyter_gpupool.client.errors import PoolError, ServiceDown
from jupyter_gpupool.client.find import Place, find_pool, place
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


class NotYours(PoolError):  # noqa: N818
    """The service is one that only its administrator can start."""

    def __init__(self) -> None:
        super().__init__(
            "not_yours", "Your Hub's administrator runs the pool's service; only they can start it."
        )


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
        self._place: Place | None = None
        self._finding: asyncio.Future[Connection] | None = None

    @property
    def startable(self) -> bool:
        """Whether the service is the user's own."""
        return self._place is not None and self._place.home is not None

    @property
    def connection(self) -> Connection | None:
        """The way to the service that was found last."""
        found = self._finding
        return None if found is None or not found.done() or found.exception() else found.result()

    async def request(self, method: str, path: str, *, may_start: bool = True) -> Reply:
        """Send one request that may arrive twice, and return the service's answer whatever its status.

        Parameters
        ----------
        may_start
            Whether the user's own service is started for it, where it does not run yet.

        Raises
        ------
        PoolError
            There is no service to ask: it is starting, down, or not configured.
        """
        if not (may_start or self._is_there()):
            raise NotRunning
        if self._moved() or (self._failed() and self._may_be_there()):
            self._look()
        connection = await self._found()
        if self.has_ended(connection):
            raise NotRunning
        ask = partial(connection.request, method, path, repeatable=True)
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    async def start(self) -> None:
        """Find the service again, and so start it where it is not running.

        Raises
        ------
        PoolError
            It cannot be started, or not from here, or is not there yet.
        """
        if self._moved() or self._failed() or self._ended():
            self._look()
        if not self.startable:
            raise NotYours
        await self._found()

    def _is_there(self) -> bool:
        """Tell whether a service may answer that nobody here has to start."""
        home = place(os.environ).home
        return home is None or home.service_socket.exists()

    def _moved(self) -> bool:
        """Tell whether the pool is another one than before, such as after a new login."""
        before, self._place = self._place, place(os.environ)
        return before != self._place

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
        return self.connection is not None and self.has_ended(self.connection)

    def has_ended(self, connection: Connection) -> bool:
        """Tell whether the user's own service ended on purpose."""
        at = connection.address
        return self.startable and isinstance(at, UnixAddress) and not os.path.exists(at.path)

    def _may_be_there(self) -> bool:
        """Tell whether it is worth looking again: somebody else may have started the user's own service."""
        return self._place is None or self._place.home is None or self._place.home.service_socket.exists()


def _find() -> Connection:
    return find_pool(os.environ)
