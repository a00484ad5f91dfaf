"""HTTP to the pool's service: over its Unix socket, or over http(s).

Owns: one kept-alive connection per thread, retries with back-off, the note that the service is of another
version. Never: what the requests mean, or whom to trust (see `jupyter_gpupool.client.peers`).
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Callable, NamedTuple

from jupyter_gpupool._version import __version__, goes_with
from jupyter_gpupool.client.address import Address, UnixAddress, parse
from jupyter_gpupool.client.errors import PoolError, ServiceDown
from jupyter_gpupool.client.peers import LoopbackConnection, UnixConnection

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds between tries
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
TIMEOUT = 30.0  # seconds that one answer may take


class Reply(NamedTuple):
    """A complete answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unreachable(OSError):  # noqa: N818
    """No connection was made: the request certainly did not arrive."""


class Connection:
    """A way to one pool's service, shared by all threads of a process.

    Parameters
    ----------
    url : str
        ``unix:/path/to/hub.sock?uid=990`` (served by that account, by root or by oneself; without ``?uid=``
        by oneself or root) or ``https://host/services/gpupool``; ``http`` over loopback only.
    token : str, optional
        Sent with every request, to this address alone.
    revive : callable, optional
        Starts the service again; called once per request when nothing listens.
    note : callable, optional
        Called once, with a line, when the service is of another minor version.
    pauses : sequence of float
        Seconds between tries.

    Raises
    ------
    Refused
        When the address cannot be used safely or is not understood.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        revive: Callable[[], None] | None = None,
        note: Callable[[str], None] | None = None,
        timeout: float = TIMEOUT,
        pauses: tuple[float, ...] = PAUSES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url
        self._token = token
        self._revive = revive
        self._note = note
        self._timeout = timeout
        self._pauses = pauses
        self._sleep = sleep
        self._local = threading.local()
        self.address = parse(url)
        self._open = opener(self.address)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        repeatable: bool | None = None,
    ) -> Reply:
        """Send one request and read the whole answer, whatever its status.

        Parameters
        ----------
        path : str
            Absolute, or relative to the API's root (``jobs/17``).
        timeout : float, optional
            Seconds that the answer may take.
        repeatable : bool, optional
            Whether the request may arrive twice; by default GET, HEAD, PUT, DELETE and whatever carries an
            Idempotency-Key may.

        Raises
        ------
        ServiceDown
            When nothing answers, after retries.
        """
        sent = self._headers(headers)
        if repeatable is None:
            repeatable = method in REPEATABLE or "Idempotency-Key" in sent
        revive = self._revive
        for pause in (*self._pauses, None):
            try:
                return self._exchange(method, self._target(path), body, sent, timeout or self._timeout)
            except Unreachable as error:
                problem: Exception = error
                if revive is not None:
                    revive()
                    revive, pause = None, 0.0
            except socket.timeout:
                waited = f"{timeout or self._timeout:g} s"
                raise ServiceDown(f"The pool's service at {self.url} gave no answer in {waited}.") from None
            except (OSError, http.client.HTTPException) as error:
                problem = error
                if not repeatable:
                    break
            if pause is not None:
                self._sleep(pause)
        raise self._down(problem)

    def stream(
        self, path: str, headers: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> Stream:
        """Open an answer that does not end by itself, on a connection of its own.

        Raises
        ------
        ServiceDown
            When nothing answers; not retried, because the caller knows where to go on.
        PoolError
            When the service refuses.
        """
        connection = self._open(timeout or self._timeout)
        try:
            self._connect(connection)
            sock = connection.sock
            connection.request("GET", self._target(path), headers=self._headers(headers))
            response = connection.getresponse()
            self._compare(response)
            if response.status >= 400:
                raise PoolError.from_reply(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._down(error) from None
        except BaseException:
            connection.close()
            raise
        return Stream(connection, response, sock)

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.__dict__.clear()

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout: float
    ) -> Reply:
        connection = self._connected()
        try:
            assert connection.sock is not None
            connection.sock.settimeout(timeout)
            connection.request(method, target, body=body, headers=dict(headers))
            with connection.getresponse() as response:  # left to be collected, it swallows a Ctrl-C
                self._compare(response)
                came = {name.lower(): value for name, value in response.getheaders()}
                return Reply(response.status, came, response.read())
        except BaseException:
            self.close()  # half an answer must never be taken for the next one
            raise

    def _connected(self) -> http.client.HTTPConnection:
        """Return this thread's connection, opened again if it is stale or was inherited by a fork."""
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            local.__dict__.clear()
        connection: http.client.HTTPConnection | None = getattr(local, "connection", None)
        if connection is None or connection.sock is None or _stale(connection.sock):
            self.close()
            connection = self._open(self._timeout)
            self._connect(connection)
            local.connection, local.pid = connection, os.getpid()
        return connection

    @staticmethod
    def _connect(connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            raise Unreachable(*error.args) from error

    def _compare(self, response: http.client.HTTPResponse) -> None:
        """Note, once, a service of another minor version: v1 is the same, but one may know less."""
        theirs = response.headers.get("X-Gpupool-Version")
        if self._note and theirs and not goes_with(theirs):
            self._note(f"The pool's service is of version {theirs}, and this is {__version__}.")
            self._note = None

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        sent = {"User-Agent": f"jupyter-gpupool/{__version__}", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"token {self._token}"
        return sent

    def _target(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.address.base}/api/v1/{path}"

    @property
    def managed(self) -> bool:
        """Whether the service is somebody else's to start: a Hub's administrator's."""
        return not isinstance(self.address, UnixAddress) or self.address.owner is not None

    def _down(self, problem: Exception) -> ServiceDown:
        because = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        because = because or type(problem).__name__
        hint = "Your Hub's administrator runs it." if self.managed else "Start it with: jupyter gpupool serve"
        return ServiceDown(f"The pool's service at {self.url} does not answer: {because}.", hint=hint)


class Stream:
    """The lines of an answer that does not end by itself; close it, or use it in a ``with``."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        sock: socket.socket,
    ) -> None:
        self._connection = connection
        self._response = response
        self._sock = sock

    def lines(self) -> Iterator[str]:
        """Yield lines without their ends until the service closes.

        Raises
        ------
        OSError
            When the connection breaks or is silent for longer than its timeout.
        """
        while True:
            line = self._response.readline()
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\r\n")

    def set_timeout(self, seconds: float) -> None:
        """Change how long a silence may last."""
        self._sock.settimeout(seconds)

    def interrupt(self) -> None:
        """End the reading of another thread: there its lines come to an end."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Hang up."""
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def opener(address: Address) -> Callable[[float], http.client.HTTPConnection]:
    """Return a function of a timeout that makes a connection to `address`."""
    if isinstance(address, UnixAddress):
        unix = address
        return lambda timeout: UnixConnection(unix, timeout)
    secure, host, port, _ = address
    kind = http.client.HTTPSConnection if secure else LoopbackConnection
    return lambda timeout: kind(host, port, timeout=timeout)


def _stale(sock: socket.socket) -> bool:
    """Tell whether the other end hung up: between two answers nothing else is ever readable."""
    if not hasattr(select, "poll"):
        return False
    poller = select.poll()
    poller.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poller.poll(0))
