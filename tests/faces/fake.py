"""A service that answers what a test tells it to, over a real Unix socket."""

from __future__ import annotations

import json
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

ROOT = "/services/gpupool/api/v1/"
Answer = tuple[int, Any] | tuple[int, Any, Mapping[str, str]]
Handler = Callable[[dict[str, Any]], Answer]


class FakeService:
    """Answers by `answers`: ``"GET jobs/7"`` to a status and a body, or to a function of the request's body.

    Attributes
    ----------
    asked
        Every request so far: method and path, and the decoded body.
    """

    def __init__(self, url: str):
        self.url = url
        self.answers: dict[str, Answer | Handler] = {}
        self.asked: list[tuple[str, Any]] = []

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        key = f"{method} {path.removeprefix(ROOT)}"
        decoded = json.loads(body) if body[:1] == b"{" else {}
        self.asked.append((key, decoded))
        found = self.answers.get(key) or self.answers.get(key.split("?")[0])
        if found is None:
            return 404, refusal("not_found", f"There is no {key}.")
        return found(decoded) if callable(found) else found

    def sent(self, key: str) -> list[Any]:
        """Return the bodies that were sent with one method and path."""
        return [body for name, body in self.asked if name == key]


def refusal(code: str, message: str, **fields: Any) -> dict[str, Any]:
    """Return the service's one error shape."""
    empty = dict.fromkeys(("used", "limit", "unit", "retry_at", "hint"))
    return {"error": {"code": code, "message": message, **empty, **fields}}


@contextmanager
def fake_service() -> Iterator[FakeService]:
    """Run a fake service for the length of a ``with``."""
    with tempfile.TemporaryDirectory(prefix="gpupool-fake-") as folder:
        path = Path(folder, "service.sock")
        fake = FakeService(f"unix:{path}")

        class Request(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content, *more = fake.answer(self.command, self.path, body)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in (more[0] if more else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _reply  # noqa: N815

            def address_string(self) -> str:
                return "local"

            def log_message(self, *_: Any) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        with Server(str(path), Request) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            try:
                yield fake
            finally:
                server.shutdown()
                thread.join()
