"""A real JupyterHub with its real proxy and the pool's real, managed service; nothing is stubbed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.commands.demo.hub import proxy_path
from jupyter_gpupool.service.takeover import parent_of
from tests.hub.site import request, until
from tests.service.conftest import Answer, Caller
from tests.tour.lab import free_port

ADMIN_TOKEN = "a-token-of-the-test-alone-0123456789"
SERVICE_TOKEN = "a-token-of-the-service-alone-0123456789"
BASE = "/base/"
CONFIG = """
from jupyter_gpupool.hub import setup
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}{base}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
members = {{"vision": ["ada", "bob", "root-of-pool"], "ops": ["carl"]}}
c.JupyterHub.load_groups = {{name: {{"users": users}} for name, users in members.items()}}
c.JupyterHub.services.append({{"name": "test", "api_token": {token!r}}})
c.JupyterHub.load_roles.append(
    {{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:groups", "tokens"]}}
)
setup(c, home={home!r}, simulate="1x2x8GiB", demo=True, admins=["root-of-pool"])
next(spec for spec in c.JupyterHub.services if spec["name"] == "gpupool")["api_token"] = {own!r}
open({spawner_token!r}, "w").write(c.GpuPoolMixin.pool_token)
"""
POLICY = """
partitions: {all: {gpus: ["*:*"], for: [session, job], slices: [{share: 1/8}, {gpus: 0}]}}
groups:
  ops: {quota: {gpus: 1}}
  vision: {quota: {gpus: 1}, managers: [bob]}
run_as: service
notify: {smtp: "smtps://mail.example.org/"}
"""


class RealHub:
    """One Hub, which can be stopped, killed and started again."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.home = Home(folder / "home")
        self.home.make()
        (self.home.path / "policy.yaml").write_text(POLICY)
        self.port, self.hub_port, proxy_port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}{BASE}".rstrip("/")
        self.config = folder / "jupyterhub_config.py"
        self.config.write_text(
            CONFIG.format(
                port=self.port,
                hub_port=self.hub_port,
                proxy_port=proxy_port,
                base=BASE,
                token=ADMIN_TOKEN,
                own=SERVICE_TOKEN,
                home=str(self.home.path),
                spawner_token=str(folder / "spawner-token"),
            )
        )
        self.log = folder / "hub.log"
        self.local = Caller(self.home)

    @property
    def hub_sock(self) -> Path:
        return self.home.path / "hub" / "hub.sock"

    def start(self) -> RealHub:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.config)],
                env={**os.environ, "PATH": proxy_path()},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, "Hub and service answer", self.said)
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.said()
        with contextlib.suppress(OSError):
            health = urllib.request.urlopen(f"{self.url}/services/gpupool/health", timeout=5)
            return json.loads(health.read())["status"] == "ok" and self.served_by() is not None
        return False

    def said(self) -> str:
        return self.log.read_text()[-8000:]

    def served_by(self) -> int | None:
        """The process of the service, as it says itself."""
        try:
            pid: int = json.loads(self.home.service_record.read_text())["pid"]
        except (OSError, ValueError):
            return None
        return pid

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def api(self, method: str, path: str, body: Any = None) -> Any:
        status, reply = request(method, f"{self.url}/hub/api/{path}", body, token=ADMIN_TOKEN)
        assert status < 300, reply
        return reply

    def token_of(self, user: str, *scopes: str) -> str:
        with contextlib.suppress(AssertionError):
            self.api("POST", f"users/{user}")
        body = {"scopes": list(scopes)} if scopes else {}
        return str(self.api("POST", f"users/{user}/tokens", body)["token"])

    def pool(self, method: str, path: str, body: Any = None, *, token: str) -> tuple[int, Any]:
        """Ask the service through the proxy, as programs elsewhere do."""
        return request(method, f"{self.url}/services/gpupool/api/v1/{path}", body, token=token)

    def direct(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Answer:
        """Ask the service at its socket, as servers on this host do."""
        return at_socket(self.hub_sock, method, path, body, token=token)


def has_ended(pid: int | None) -> bool:
    """Whether a process is gone, or waits only to be reaped."""
    return pid is not None and parent_of(pid) is None


def at_socket(socket: Path, method: str, path: str, body: Any = None, *, token: str | None = None) -> Answer:
    reply = Connection(f"unix:{socket}", token=token, pauses=()).request(
        method, path, None if body is None else json.dumps(body).encode()
    )
    is_json = reply.headers.get("content-type") == "application/json" and reply.body
    return Answer(reply.status, json.loads(reply.body) if is_json else reply.body, dict(reply.headers))


class Browser:
    """Cookies and redirects, logged in to the Hub as one user."""

    def __init__(self, hub: RealHub, name: str):
        self.hub = hub
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self.visit("/hub/login")
        fields = {"_xsrf": self.xsrf(f"{BASE}hub/"), "username": name, "password": "any"}
        self.send("POST", "/hub/login", urllib.parse.urlencode(fields).encode())

    def xsrf(self, path: str = f"{BASE}services/gpupool/") -> str:
        return next(
            found.value or "" for found in self.cookies if (found.name, found.path) == ("_xsrf", path)
        )

    def visit(self, path: str) -> tuple[int, str, str]:
        """Open a page; return status, text, and where it ended."""
        return self.send("GET", path, None, **{"Sec-Fetch-Mode": "navigate", "Accept": "text/html"})

    def send(self, method: str, path: str, data: bytes | None, **headers: str) -> tuple[int, str, str]:
        url = path if path.startswith("http") else f"{self.hub.url}{path}"
        asked = urllib.request.Request(url, method=method, data=data, headers=headers)
        try:
            with self._opener.open(asked, timeout=60) as reply:
                return reply.status, reply.read().decode(), reply.url
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.url
