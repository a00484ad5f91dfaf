"""A whole site for tests: a real JupyterHub with its proxy, the pool's service, launcher and servers.

It is the demo's Hub with a line or two of configuration added, in a folder of the test's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.cookiejar
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_gpupool.commands.demo import files
from jupyter_gpupool.commands.demo.hub import end_jobs, prepare, proxy_path
from tests.tour.lab import free_port

ROOT_TOKEN = "a-token-of-the-test-alone-0123456789"
PASSWORD = "secret"
CONFIG = """
c = get_config()
load_subconfig({demo!r})
c.JupyterHub.services.append({{"name": "test", "api_token": {token!r}}})
scopes = ["admin:users", "admin:servers", "admin:groups", "tokens", "access:servers"]
c.JupyterHub.load_roles.append({{"name": "test", "services": ["test"], "scopes": scopes}})
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 1}}
c.Spawner.poll_interval = 3
{extra}
"""


class Site:
    """One Hub, started and stopped as the test says.

    Parameters
    ----------
    folder
        Where everything is kept.
    pool
        The simulated pool.
    policy
        Text of another policy than the demo's.
    extra
        Lines added to the Hub's configuration.
    """

    def __init__(
        self, folder: Path, *, pool: str = "4x8x32GiB", policy: str | None = None, extra: str = ""
    ) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.port, self.hub_port, self.proxy_port = free_port(), free_port(), free_port()
        prepare(folder, simulated=True)
        if policy is not None:
            (self.home / "policy.yaml").write_text(policy)
        demo = str(files.site_files() / "jupyterhub_config.py")
        self.config = folder / "jupyterhub_config.py"
        self.config.write_text(CONFIG.format(demo=demo, token=ROOT_TOKEN, extra=extra))
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("GPUPOOL_", "JUPYTERHUB_"))
            },
            "PATH": proxy_path(),
            "GPUPOOL_HOME": str(self.home),
            "GPUPOOL_DEMO_DIR": str(folder),
            "GPUPOOL_DEMO_PORTS": f"{self.port},{self.hub_port},{self.proxy_port}",
            "GPUPOOL_DEMO_PASSWORD": PASSWORD,
            "GPUPOOL_DEMO_POOL": pool,
            "GPUPOOL_DEMO_ANNOUNCEMENT": "",
        }
        self.log = folder / "hub.log"
        self.process: subprocess.Popen[bytes] | None = None

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> Site:
        """Start the Hub, and return when it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.config)],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, "the Hub answers", self.tail)
        until(self._serves, "the pool answers", self.tail)
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the Hub ended:\n{self.log.read_text()[-6000:]}"
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/hub/health", timeout=5).status == 200
        return False

    def _serves(self) -> bool:
        """Whether the pool's service is open for what the Hub's users ask."""
        _, reply = request("GET", f"{self.url}/services/gpupool/health", None, token=ROOT_TOKEN)
        return isinstance(reply, dict) and reply.get("status") == "ok"

    def stop(self) -> None:
        """End the Hub as an administrator does, with its proxy, service and servers."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def kill(self) -> None:
        """Kill the Hub and nothing else, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End everything of this site, whatever the test left."""
        self.stop()
        asyncio.run(end_jobs(self.home))
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """All processes whose environment or command line names this site's folder."""
        mark = str(self.folder).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                if mark in command or (command and mark in (entry / "environ").read_bytes()):
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode()
        return found

    # -- REST ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, method: str, path: str, body: Any = None, *, token: str = ROOT_TOKEN) -> tuple[int, Any]:
        """Ask the Hub's REST; return status and decoded body."""
        return request(method, f"{self.url}/hub/api/{path}", body, token=token)

    def token_of(self, user: str, *scopes: str) -> str:
        """Return a new token of a user."""
        body = {"scopes": list(scopes)} if scopes else {}
        status, reply = self.api("POST", f"users/{user}/tokens", body)
        assert status == 201, reply
        return str(reply["token"])

    def begin(self, user: str, options: Any = None, *, server: str = "") -> tuple[int, Any]:
        """Ask the Hub to start a server, as a REST client does."""
        self.api("POST", f"users/{user}")
        path = f"users/{user}/servers/{server}" if server else f"users/{user}/server"
        return self.api("POST", path, {} if options is None else options)

    def log_in(self, user: str, options: Any = None, *, server: str = "") -> None:
        """Start a server and wait until it is ready."""
        status, reply = self.begin(user, options, server=server)
        assert status in (201, 202), (reply, self.tail())
        self.ready(user, server)

    def server(self, user: str, server: str = "") -> dict[str, Any] | None:
        """Return what the Hub says of a server; None when it has none."""
        _, reply = self.api("GET", f"users/{user}?include_stopped_servers")
        return (reply.get("servers") or {}).get(server)

    def ready(self, user: str, server: str = "", *, patience: float = 90) -> dict[str, Any]:
        """Wait until a server is ready."""
        until(
            lambda: (self.server(user, server) or {}).get("ready"),
            f"{user}'s server is ready",
            self.tail,
            patience,
        )
        found = self.server(user, server)
        assert found is not None
        return found

    def gone(self, user: str, server: str = "") -> None:
        """Wait until the Hub has no such server, nor one pending."""

        def is_gone() -> bool:
            found = self.server(user, server)
            return found is None or not (found["ready"] or found["pending"])

        until(is_gone, f"{user}'s server is gone", self.tail)

    def end(self, user: str, server: str = "") -> int:
        """Ask the Hub to stop a server."""
        path = f"users/{user}/servers/{server}" if server else f"users/{user}/server"
        return self.api("DELETE", path)[0]

    def progress(self, user: str, server: str = "") -> list[dict[str, Any]]:
        """Return what the Hub tells of a pending start, to its end."""
        path = f"users/{user}/servers/{server}/progress" if server else f"users/{user}/server/progress"
        asked = urllib.request.Request(
            f"{self.url}/hub/api/{path}", headers={"Authorization": f"token {ROOT_TOKEN}"}
        )
        with urllib.request.urlopen(asked, timeout=120) as stream:
            return [json.loads(line[6:]) for line in stream if line.startswith(b"data: ")]

    def pool(self, method: str, path: str, body: Any = None, *, token: str) -> tuple[int, Any]:
        """Ask the pool's service through the proxy."""
        return request(method, f"{self.url}/services/gpupool/api/v1/{path}", body, token=token)

    def leases(self) -> list[dict[str, Any]]:
        """Return every lease on a card, as an administrator of the machine sees them."""
        from jupyter_gpupool.client.api import Client
        from jupyter_gpupool.client.home import Home
        from jupyter_gpupool.client.transport import Connection

        pool = Client(Connection(Home(self.home).url())).pool()
        return [
            {**lease, "uuid": card["uuid"], "memory_mib": card["memory_mib"]}
            for node in pool["nodes"]
            for card in node["gpus"]
            for lease in card["leases"]
        ]

    def tail(self) -> str:
        """Return the last lines of the logs, for a test that fails."""
        logs = [self.log, self.home / "service.log", self.home / "launcher.log"]
        return "\n".join(f"{log.name}:\n{quiet(log.read_text())[-4000:]}" for log in logs if log.exists())


class Person:
    """A browser without a screen: cookies, forms and redirects, logged in as one user."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self.page("/hub/login")
        self.submit("/hub/login?next=", {"username": name, "password": PASSWORD})

    @property
    def xsrf(self) -> str:
        return next((cookie.value or "" for cookie in self.cookies if cookie.name == "_xsrf"), "")

    def page(self, path: str, data: bytes | None = None) -> tuple[int, str]:
        """Open a page; return status and text."""
        asked = urllib.request.Request(f"{self.site.url}{path}", data=data)
        asked.add_header("Sec-Fetch-Mode", "navigate")
        asked.add_header("Accept", "text/html")
        asked.add_header("Referer", f"{self.site.url}{path}")
        try:
            with self._opener.open(asked, timeout=120) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def submit(self, path: str, fields: dict[str, str]) -> tuple[int, str]:
        """Send a form."""
        joined = "&" if "?" in path else "?"
        return self.page(f"{path}{joined}_xsrf={self.xsrf}", urllib.parse.urlencode(fields).encode())


def request(method: str, url: str, body: Any, *, token: str) -> tuple[int, Any]:
    """Send one request with a token; return status and decoded body."""
    asked = urllib.request.Request(
        url,
        method=method,
        headers={"Authorization": f"token {token}", "Content-Type": "application/json"},
        data=None if body is None else json.dumps(body).encode(),
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return reply.status, _decoded(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, _decoded(error.read())


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content.decode()


def until(
    reached: Callable[[], Any], what: str, explain: Callable[[], str] = str, patience: float = 60
) -> None:
    """Look until something is so; a test that waits in vain says what for."""
    deadline = time.monotonic() + patience
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not in {patience:g} s.\n{explain()}"
        time.sleep(0.05)


def quiet(log: str) -> str:
    """Return a log without the requests that succeeded."""
    return "\n".join(line for line in log.splitlines() if " 200 GET " not in line)
