"""Spawners to put under the mixin, and the servers that they start."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar

from jupyterhub.spawner import SimpleLocalProcessSpawner, Spawner

from jupyter_gpupool.spawner import GpuPoolLocalSpawner, GpuPoolMixin

SERVER = """
import http.server, os, signal, subprocess, sys, urllib.parse
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(repr(dict(os.environ)).encode())
    def log_message(self, *_): pass
where = urllib.parse.urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
for _ in range(int(os.environ.get("TEST_LEFT_BEHIND", 0))):
    subprocess.Popen(["sleep", "600"], start_new_session=True)
http.server.ThreadingHTTPServer((where.hostname, where.port), Server).serve_forever()
"""
COMMAND = [sys.executable, "-S", "-c", SERVER]


class StubBackend(Spawner):
    """Servers that are all one HTTP endpoint of the test; the class says how the next start goes."""

    endpoint: ClassVar[tuple[str, int]]
    starts: ClassVar[list[dict[str, str]]] = []
    stops: ClassVar[list[str]] = []
    fails: ClassVar[Exception | None] = None
    hangs: ClassVar[bool] = False
    alive = False

    async def start(self) -> tuple[str, int]:
        self.starts.append(self.get_env())
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise self.fails
        self.alive = True
        return self.endpoint

    async def stop(self) -> None:
        self.stops.append(self.user.name)
        self.alive = False

    async def poll(self) -> int | None:
        return None if self.alive else 0

    def clear_state(self) -> None:
        super().clear_state()
        self.alive = False


class PooledStub(GpuPoolMixin, StubBackend):
    pass


class FormBackend(StubBackend):
    """A site's own form, and its own reading of it."""

    def options_form(self, _spawner: Any = None) -> str:  # type: ignore[override]
        return '<input name="image" value="plain">'

    def options_from_form(self, form_data: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {"image": form_data["image"][0]} if "image" in form_data else {}


class PooledForm(GpuPoolMixin, FormBackend):
    pass


class PooledProcess(GpuPoolMixin, SimpleLocalProcessSpawner):
    """The Hub's own local spawner, which clears its state in poll and polls in stop."""


class Launched(GpuPoolLocalSpawner):
    """The whole: pool and launcher."""
