"""A Jupyter server with the extension, and a small service that speaks the contract over a Unix socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tornado.httpclient
from pytest_jupyter.jupyter_server import *  # noqa: F403  (as a plugin it would run all other tests too)

from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.server import gateway
from tests.faces.unix import Answer, Call, UnixService


class FakeService(UnixService):
    """Answers what it was told to; while `hold` is clear, not yet."""

    def __init__(self, path: Path) -> None:
        self.answers: dict[str, Answer] = {}
        self.hold = threading.Event()
        self.hold.set()
        super().__init__(path)

    def answer(self, call: Call) -> Answer:
        self.hold.wait(10)
        missing = Answer({"error": {"code": "not_found", "message": "No."}}, 404)
        return self.answers.get(call.key, missing)

    @property
    def asked(self) -> list[Call]:
        """The requests, but for the stream of events that is opened once somebody looks."""
        return [call for call in self.calls if call.key != "GET events"]

    def says(self, request: str, body: Any, status: int = 200, **headers: str) -> None:
        """Answer e.g. ``GET quota`` with JSON, or with bytes as they are."""
        is_json = not isinstance(body, bytes)
        content_type = "application/json; charset=UTF-8" if is_json else "text/plain"
        named = {
            "Content-Type": content_type,
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        self.answers[request] = Answer(body, status, named)

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
        self.end()


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
