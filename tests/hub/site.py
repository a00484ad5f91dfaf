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
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_gpupool.commands.demo import files
from jupyter_gpupool.commands.demo.hub import end_jobs, prepare
from tests.hub.process import TOKEN, HubProcess, request, until

__all__ = ["PASSWORD", "ROOT_TOKEN", "Person", "Site", "request", "until"]

ROOT_TOKEN = TOKEN
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


class Site(HubProcess):
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
        demo = str(files.site_files() / "jupyterhub_config.py")
        super().__init__(folder, CONFIG, demo=demo, extra=extra)
        self.home = folder / "home"
        self._pool = pool
        prepare(folder, simulated=True)
        if policy is not None:
            (self.home / "policy.yaml").write_text(policy)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the demo's configuration is told."""
        return {
            **super().environment,
            "GPUPOOL_HOME": str(self.home),
            "GPUPOOL_DEMO_DIR": str(self.folder),
            "GPUPOOL_DEMO_PORTS": f"{self.port},{self.hub_port},{self.proxy_port}",
            "GPUPOOL_DEMO_PASSWORD": PASSWORD,
            "GPUPOOL_DEMO_POOL": self._pool,
            "GPUPOOL_DEMO_ANNOUNCEMENT": "",
        }

    # -- life ------------------------------------------------------------------------------------

    def answers(self) -> bool:
        """Whether the Hub answers, and its pool is open for what its users ask."""
        if not super().answers():
            return False
        _, reply = self.service("GET", "health", token=ROOT_TOKEN)
        return isinstance(reply, dict) and reply.get("status") == "ok"

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
    """A browser without a screen: cookies, forms and redirects, logged in to a Hub as one user.

    Parameters
    ----------
    hub
        Whatever has the `url` of a Hub.
    """

    def __init__(self, hub: Any, name: str) -> None:
        self.hub = hub
        self.name = name
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self.page("/hub/login")
        self.submit("/hub/login?next=", {"username": name, "password": PASSWORD})

    @property
    def xsrf(self) -> str:
        """What proves to the Hub that a form is its own."""
        return self.xsrf_of("/hub/")

    def xsrf_of(self, place: str) -> str:
        """What proves to who answers below `place` that a request comes from a page of its own."""
        found = (cookie for cookie in self.cookies if cookie.name == "_xsrf" and cookie.path.endswith(place))
        return next((cookie.value or "" for cookie in found), "")

    def page(self, path: str, data: bytes | None = None) -> tuple[int, str]:
        """Open a page, or send a form; return status and text."""
        return self.visit(path, data)[:2]

    def visit(self, path: str, data: bytes | None = None) -> tuple[int, str, str]:
        """Open a page, or send a form; return status, text, and where it ended."""
        headers = {"Sec-Fetch-Mode": "navigate", "Accept": "text/html", "Referer": f"{self.hub.url}{path}"}
        return self.send("GET" if data is None else "POST", path, data, **headers)

    def send(self, method: str, path: str, data: bytes | None, **headers: str) -> tuple[int, str, str]:
        """Send a request as a page's script does; return status, text, and where it ended."""
        asked = urllib.request.Request(f"{self.hub.url}{path}", method=method, data=data, headers=headers)
        try:
            with self._opener.open(asked, timeout=120) as reply:
                return reply.status, reply.read().decode(), reply.url
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.url

    def submit(self, path: str, fields: dict[str, str]) -> tuple[int, str]:
        """Send a form."""
        joined = "&" if "?" in path else "?"
        return self.page(f"{path}{joined}_xsrf={self.xsrf}", urllib.parse.urlencode(fields).encode())


def quiet(log: str) -> str:
    """Return a log without the requests that succeeded."""
    return "\n".join(line for line in log.splitlines() if " 200 GET " not in line)
