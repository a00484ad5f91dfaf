"""A real JupyterHub with its real proxy and the pool's real, managed service; nothing is stubbed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.service.takeover import parent_of
from tests.hub.process import HubProcess
from tests.service.conftest import Answer, Caller

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


class RealHub(HubProcess):
    """One Hub, which can be stopped, killed and started again."""

    def __init__(self, folder: Path):
        self.home = Home(folder / "home")
        self.home.make()
        (self.home.path / "policy.yaml").write_text(POLICY)
        token_file = str(folder / "spawner-token")
        home = str(self.home.path)
        super().__init__(folder, CONFIG, base=BASE, own=SERVICE_TOKEN, home=home, spawner_token=token_file)
        self.local = Caller(self.home)

    @property
    def hub_sock(self) -> Path:
        return self.home.hub_socket

    def answers(self) -> bool:
        """Whether Hub and service answer."""
        if not super().answers():
            return False
        _, reply = self.service("GET", "health")
        return isinstance(reply, dict) and reply.get("status") == "ok" and self.served_by() is not None

    def served_by(self) -> int | None:
        """The process of the service, as it says itself."""
        try:
            pid: int = json.loads(self.home.service_record.read_text())["pid"]
        except (OSError, ValueError):
            return None
        return pid

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
