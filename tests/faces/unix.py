"""A small HTTP service on a Unix socket or a port, for tests to say what it answers."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.address import PREFIX

ROOT = f"{PREFIX}/api/v1/"


@dataclass
class Call:
    """One request as it arrived; `connection` counts the connections from 1 on."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def key(self) -> str:
        """The method and the path below the API's root: ``GET jobs/7``."""
        return f"{self.method} {self.path.removeprefix(ROOT)}"


@dataclass
class Answer:
    """What to answer: bytes, or JSON, or chunks as they come; `drop` hangs up instead."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    chunks: Iterable[str] | None = None


class _Service(socketserver.ThreadingMixIn):
    """Serves from a thread of its own, answers by `answer(call)`, and remembers every call."""

    daemon_threads = True

    def begin(self) -> None:
        self.calls: list[Call] = []
        self.connections = 0
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def answer(self, call: Call) -> Answer:
        return Answer({})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent when a client hangs up."""

    def end(self) -> None:
        """Hang up; a socket stays."""
        self.shutdown()
        self.server_close()
        self._thread.join()


class UnixService(_Service, socketserver.UnixStreamServer):
    """A service on a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.path = path
        self.begin()

    @property
    def url(self) -> str:
        return f"unix:{self.path}"


class PortService(_Service, socketserver.TCPServer):
    """A service on a free loopback port, behind TLS where there is a context for it."""

    allow_reuse_address = True

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.port = self.server_address[1]
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.begin()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: UnixService | PortService

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1
        self.number = self.server.connections

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = Call(self.command, self.path, dict(self.headers), body, self.number)
        self.server.calls.append(call)
        answer = self.server.answer(call)
        if answer.drop:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.chunks is not None:
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for chunk in answer.chunks:
                self.wfile.write(chunk.encode())
                self.wfile.flush()
            return
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve  # noqa: N815

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""
