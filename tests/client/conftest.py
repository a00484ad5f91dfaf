"""A small service over a Unix socket, and the interpreters that the client must run in."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.transport import PREFIX, Connection

ROOT = f"{PREFIX}/api/v1/"
BARE = ("python3.9", "/usr/bin/python3")


@dataclass
class Call:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to answer; `drop` hangs up instead."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    chunks: Any = None


class FakeService(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers by `answer(call)`, and remembers every call."""

    daemon_threads = True
    reply = Answer

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.path = path
        self.calls: list[Call] = []
        self.answer: Callable[[Call], Answer] = lambda call: Answer({})
        self.connections = 0

    @property
    def url(self) -> str:
        return f"unix:{self.path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeService

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1
        self.number = self.server.connections

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a private folder with a short path, fit for sockets."""
    path = tmp_path / "s"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def service(folder: Path) -> Iterator[FakeService]:
    server = FakeService(folder / "service.sock")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def naps() -> list[float]:
    """Return the pauses that a connection made instead of sleeping."""
    return []


@pytest.fixture
def connection(service: FakeService, naps: list[float]) -> Iterator[Connection]:
    made = Connection(service.url, sleep=naps.append)
    yield made
    made.close()


@pytest.fixture
def client(connection: Connection) -> Client:
    return Client(connection)


@pytest.fixture(params=BARE)
def bare_python(request: pytest.FixtureRequest, require: Callable[[str], None]) -> str:
    """Return a Python that has none of the package's dependencies."""
    found = find_python(request.param)
    if found is None:
        require(f"{request.param} was not found (neither on PATH nor by pyenv)")
    return found


def find_python(name: str) -> str | None:
    """Return an interpreter by name: on PATH, or among pyenv's versions."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    version = name.rpartition("python")[2]
    by_pyenv = sorted(map(str, pyenv.glob(f"versions/{version}*/bin/{name}"))) if version else []
    for path in (*by_pyenv, shutil.which(name)):
        if path and os.access(path, os.X_OK):
            return path
    return None
