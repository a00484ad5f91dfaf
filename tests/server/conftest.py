"""A Jupyter server with the extension, and a small service that speaks the contract over a Unix socket."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import tornado.httpclient
from pytest_jupyter.jupyter_server import *  # noqa: F403  (as a plugin it would run all other tests too)

from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.server import gateway

PREFIX = "/services/gpupool/api/v1/"


class FakeService(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers what it was told to, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.hold = threading.Event()
        self.hold.set()
        super().__init__(str(path), _Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def says(self, request: str, body: Any, status: int = 200, **headers: str) -> None:
        """Answer e.g. ``GET quota`` with JSON, or with bytes as they are."""
        is_json = not isinstance(body, bytes)
        content_type = "application/json; charset=UTF-8" if is_json else "text/plain"
        named = {
            "Content-Type": content_type,
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        self.answers[request] = status, named, json.dumps(body).encode() if is_json else body

    def again(self) -> FakeService:
        """Start anew at the same socket."""
        return FakeService(self.path)

    def stop(self) -> None:
        """End as a service does that is told to: its socket goes."""
        self.crash()
        self.path.unlink(missing_ok=True)

    def crash(self) -> None:
        """End as a service does that is killed: its socket stays."""
        self.hold.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeService

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = self.path.removeprefix(PREFIX)
        self.server.asked.append((self.command, asked, dict(self.headers)))
        self.server.hold.wait(10)
        missing = (404, {}, b'{"error": {"code": "not_found", "message": "No."}}')
        status, headers, body = self.server.answers.get(f"{self.command} {asked}", missing)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeService]:
    """A service that runs."""
    (tmp_path / "run").mkdir(mode=0o700)
    fake = FakeService(tmp_path / "run" / "service.sock")
    yield fake
    fake.stop()


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Stand in for the client's way to the pool; lists how often it was gone."""
    calls: list[str] = []

    def find() -> Connection:
        calls.append("find")
        return Connection(f"unix:{tmp_path}/run/service.sock", pauses=())

    monkeypatch.setattr(gateway, "_find", find)
    return calls


@pytest.fixture
def jp_server_config(found: list[str]) -> dict[str, Any]:
    return {
        "ServerApp": {
            "jpserver_extensions": {"jupyter_gpupool": True},
            "allow_unauthenticated_access": False,
        }
    }


@pytest.fixture
def ask(jp_fetch: Callable[..., Any]) -> Callable[..., Any]:
    """Fetch under ``jupyter-gpupool/`` and return the answer whatever its status."""

    async def ask(path: str, method: str = "GET", **options: Any) -> tornado.httpclient.HTTPResponse:
        if method == "POST":
            options = {"body": "", **options}
        try:
            return await jp_fetch("jupyter-gpupool", *path.split("/"), method=method, **options)
        except tornado.httpclient.HTTPClientError as refusal:
            return refusal.response

    return ask
