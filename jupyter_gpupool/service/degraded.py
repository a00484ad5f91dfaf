"""What a Hub's service answers while it cannot open.

Owns: the listener of `hub.sock`, which is there from the first moment to the last, and the reply that says
why there is no more behind it. Never: why that is; whoever tries to open the service knows.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Awaitable
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.netutil import bind_unix_socket
from tornado.web import Application

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.home import MAX_SOCKET_PATH, check_private
from jupyter_gpupool.service.call import as_json
from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.replying import Replying

STARTING = "The pool's service is starting."


class Front(HTTPServerConnectionDelegate):
    """The one listener on the Hub's side; behind it is the service, once it is open.

    Attributes
    ----------
    behind
        What answers.
    """

    def __init__(self, socket: Path, max_body: int):
        self._socket = socket
        self._server = HTTPServer(self, max_body_size=max_body)
        self._lock: int | None = None
        self.behind: Application = unopened(STARTING)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Let what is behind answer."""
        return _Unhurried(self.behind.start_request(server_conn, request_conn), request_conn)

    def close_behind(self, why: str) -> None:
        """Answer everybody with a sentence."""
        self.behind = unopened(why)

    def bind(self) -> bool:
        """Listen, if nobody else does at this address; return whether it is so.

        Raises
        ------
        Refused
            The address is no place for a socket that everybody may speak to.
        """
        if self._lock is None and (lock := _take(self._socket)) is not None:
            self._server.add_socket(bind_unix_socket(str(self._socket), mode=0o666, backlog=1024))
            self._lock = lock
        return self._lock is not None

    async def close(self) -> None:
        """Hang up, and leave the address to others."""
        self._server.stop()
        await self._server.close_all_connections()
        if self._lock is not None:
            self._socket.unlink(missing_ok=True)
            os.close(self._lock)


class _Unhurried(HTTPMessageDelegate):
    """One request, whose sender hangs up first, even if it asked the server to.

    The Hub's proxy asks so, and writes an empty piece after a body. On a Unix socket that fails where the
    reply was quicker and the connection is closed, and the proxy would answer 503 in the place of the reply.
    """

    def __init__(self, behind: HTTPMessageDelegate, connection: HTTPConnection):
        self._connection = connection
        self.data_received = behind.data_received  # type: ignore[method-assign]
        self.finish = behind.finish  # type: ignore[method-assign]
        self.on_connection_close = behind.on_connection_close  # type: ignore[method-assign]
        self._behind = behind

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """Keep the connection open after the reply."""
        self._connection._disconnect_on_finish = False  # type: ignore[attr-defined]
        return self._behind.headers_received(start_line, headers)


def unopened(why: str) -> Application:
    """Build what answers with one sentence whatever is asked; ``/health`` says that it is so."""
    told = {"why": why}
    return Application(
        [(r".*/health", Health, told)],
        log_function=lambda handler: None,
        default_handler_class=Unopened,
        default_handler_args=told,
    )


class Unopened(Replying):
    """Any address of a service that is not open."""

    def initialize(self, why: str) -> None:
        """Take the sentence."""
        self.why = why

    def get(self) -> None:
        """Say why."""
        hint = "An administrator of the pool can put it right; the service tries again by itself."
        self.refuse(ApiError(503, "not_open", self.why, hint=hint))

    head = post = put = delete = patch = options = get


class Health(Unopened):
    """Whether the service works: it does not."""

    def get(self) -> None:
        """Say so."""
        self.send(as_json({"status": "degraded", "version": __version__}))

    head = get


def _take(socket: Path) -> int | None:
    """Make the socket's folder, and hold its lock as long as this process lives; None if another does."""
    if len(os.fsencode(socket)) > MAX_SOCKET_PATH:
        hint = "Set GPUPOOL_HUB_SOCKET to a shorter one."
        raise Refused("invalid_option", f"{socket} is too long for a socket's address.", hint=hint)
    if not socket.parent.exists():
        socket.parent.mkdir(mode=0o755)
        socket.parent.chmod(0o755)
    check_private(socket.parent)
    lock = os.open(socket.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
