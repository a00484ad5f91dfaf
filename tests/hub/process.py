"""A JupyterHub of a test's own, with its real proxy: the process, its log and its REST interface."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from jupyter_gpupool.commands.demo.hub import proxy_path
from tests.tour.lab import free_port

TOKEN = "a-token-of-the-test-alone-0123456789"


class HubProcess:
    """One Hub, which can be stopped, killed and started again.

    Parameters
    ----------
    folder
        Where its files are.
    text
        Its configuration. ``{port}``, ``{hub_port}``, ``{proxy_port}``, ``{base}`` and ``{token}`` are filled
        in, as are `names`; that token is the one of a service of the test's own.
    base
        Its base URL.
    """

    def __init__(self, folder: Path, text: str, *, base: str = "/", **names: str) -> None:
        self.folder, self.base = folder, base
        self.port, self.hub_port, self.proxy_port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}{base}".rstrip("/")
        self.config, self.log = folder / "jupyterhub_config.py", folder / "hub.log"
        ports = {"port": self.port, "hub_port": self.hub_port, "proxy_port": self.proxy_port}
        self.config.write_text(text.format(**ports, base=base, token=TOKEN, **names))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """The Hub's environment; nothing in it of a pool or Hub in which the tests run."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GPUPOOL_", "JUPYTERHUB_"))
        }
        return {**kept, "PATH": proxy_path()}

    # -- life ------------------------------------------------------------------------------------

    def launch(self, *options: str) -> Self:
        """Start the Hub with options of the command line; it does not answer yet."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.config), *options],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def start(self, *options: str) -> Self:
        """Start the Hub, and return when it answers."""
        self.launch(*options)
        until(self.answers, "the Hub answers", self.tail)
        return self

    def answers(self) -> bool:
        """Whether it answers; a Hub that has ended fails the test."""
        assert self.process is not None
        assert self.process.poll() is None, f"the Hub ended:\n{self.tail()}"
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/hub/health", timeout=5).status == 200
        return False

    def stop(self) -> None:
        """End the Hub as an administrator does, with its proxy, service and servers."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        """Kill the Hub and nothing else, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        """Return the Hub's log."""
        return self.log.read_text()

    def tail(self) -> str:
        """Return the last lines of the log, for a test that fails."""
        return self.said()[-8000:]

    # -- REST ------------------------------------------------------------------------------------

    def api(self, method: str, path: str, body: Any = None, *, token: str = TOKEN) -> tuple[int, Any]:
        """Ask the Hub's REST; return status and decoded body."""
        return request(method, f"{self.url}/hub/api/{path}", body, token=token)

    def granted(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the Hub for what it must not refuse; return the decoded body."""
        status, reply = self.api(method, path, body)
        assert status < 300, reply
        return reply

    def token_of(self, user: str, *scopes: str) -> str:
        """Return a new token of a user, who is made if there is none."""
        self.api("POST", f"users/{user}")
        body = {"scopes": list(scopes)} if scopes else {}
        return str(self.granted("POST", f"users/{user}/tokens", body)["token"])

    def service(self, method: str, path: str, body: Any = None, *, token: str = "none") -> tuple[int, Any]:
        """Ask the pool's service through the proxy, as programs elsewhere do."""
        return request(method, f"{self.url}/services/gpupool/{path}", body, token=token)

    def pool(self, method: str, path: str, body: Any = None, *, token: str) -> tuple[int, Any]:
        """Ask the service's own interface through the proxy."""
        return self.service(method, f"api/v1/{path}", body, token=token)


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
