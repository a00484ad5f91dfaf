"""A service that answers what a test tells it to, over a real Unix socket."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faces import unix
from tests.faces.unix import Call, UnixService

Answer = tuple[int, Any] | tuple[int, Any, Mapping[str, str]]
Handler = Callable[[dict[str, Any]], Answer]


class FakeService(UnixService):
    """Answers by `answers`: ``"GET jobs/7"`` to a status and a body, or to a function of the request's body.

    It has no snapshot yet, and takes every one.

    Attributes
    ----------
    asked
        Every request so far: method and path, and the decoded body.
    """

    def __init__(self, path: Path):
        self.answers: dict[str, Answer | Handler] = {}
        self.asked: list[tuple[str, Any]] = []
        super().__init__(path)

    def answer(self, call: Call) -> unix.Answer:
        decoded = json.loads(call.body) if call.body[:1] == b"{" else {}
        self.asked.append((call.key, decoded))
        if " snapshots/" in call.key:
            return unix.Answer({}, 404 if call.method == "HEAD" else 201)
        found = self.answers.get(call.key) or self.answers.get(call.key.split("?")[0])
        if found is None:
            return unix.Answer(refusal("not_found", f"There is no {call.key}."), 404)
        status, body, *headers = found(decoded) if callable(found) else found
        return unix.Answer(body, status, dict(*headers))

    def sent(self, key: str) -> list[Any]:
        """Return the bodies that were sent with one method and path."""
        return [body for name, body in self.asked if name == key]


def refusal(code: str, message: str, **fields: Any) -> dict[str, Any]:
    """Return the service's one error shape."""
    empty = dict.fromkeys(("used", "limit", "unit", "retry_at", "hint"))
    return {"error": {"code": code, "message": message, **empty, **fields}}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    """A fake service, which this process takes for its pool."""
    with tempfile.TemporaryDirectory(prefix="gpupool-fake-") as folder:
        service = FakeService(Path(folder, "service.sock"))
        monkeypatch.setenv("GPUPOOL_URL", service.url)
        yield service
        service.end()
