"""What a user of a whole site may try, and what may be killed under all: real accounts and processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.address import UnixAddress
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.engines.local.cgroups import Subtree
from jupyter_gpupool.engines.local.identity import Account
from tests.conftest_accounts import Accounts
from tests.hub.process import TOKEN, request, until
from tests.hub.site import Person
from tests.hub.workstation import Workstation

pytestmark = [pytest.mark.requires_server("node"), pytest.mark.timeout(240)]

API = "/services/gpupool/api/v1"
EIGHTH = {"slice": "1/8"}
STORM_S = 8.0
SERVER = """
import http.server, os, urllib.parse
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
at = urllib.parse.urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
http.server.ThreadingHTTPServer((at.hostname, at.port), Answer).serve_forever()
"""
MORE = """
import sys
c.JupyterHub.services.append({{"name": "test", "api_token": "{token}"}})
scopes = ["admin:users", "admin:servers", "admin:groups", "tokens", "access:servers"]
c.JupyterHub.load_roles.append({{"name": "test", "services": ["test"], "scopes": scopes}})
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 20}}
c.Spawner.poll_interval = 3
c.Spawner.cmd = [sys.executable, "{server}"]
"""


class Town(Workstation):
    """A workstation, and what the tests ask of it."""

    @property
    def sockets(self) -> dict[str, Path]:
        """Where each part listens."""
        return {
            "hub": self.home / "hub" / "hub.sock",
            "service": self.home / "run" / "service.sock",
            "launcher": self.launcher / "run" / "launcher.sock",
        }

    def hub(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return request(method, f"{self.url}/hub/api/{path}", body, token=TOKEN)

    def pool(self, method: str, path: str, body: Any = None, *, token: str) -> tuple[int, Any]:
        return request(method, f"{self.url}{API}/{path}", body, token=token)

    def log(self, job: int, token: str) -> str:
        """Return what a job has written so far."""
        return str(self.pool("GET", f"jobs/{job}/logs", token=token)[1] or "")

    def token_of(self, account: Account) -> str:
        """Return a new token of a user."""
        self.hub("POST", f"users/{account.name}")
        return str(self.hub("POST", f"users/{account.name}/tokens", {})[1]["token"])

    def log_in(self, account: Account, options: Any, server: str = "") -> None:
        """Start a server and wait until it is ready."""
        self.hub("POST", f"users/{account.name}")
        status, reply = self.hub("POST", f"users/{account.name}/servers/{server}", options)
        assert status in (201, 202), reply
        until(lambda: self.known(account).get(server, {}).get("ready"), f"{server!r} is ready", self.tail)

    def known(self, account: Account) -> dict[str, Any]:
        """Return the Hub's view of a user's servers, running or pending."""
        return dict(self.hub("GET", f"users/{account.name}")[1].get("servers") or {})

    def log_out(self) -> None:
        """End all servers of all, and wait until no process and no lease is left."""
        for account in (self.accounts.ada, self.accounts.bob):
            for server in self.known(account):
                self.hub("DELETE", f"users/{account.name}/servers/{server}")
        until(lambda: not (self.servers() or self.leases()), "nothing is left", self.tail, 90)

    def leases(self) -> dict[int, str]:
        """Return the user of each lease on a card, as root sees it."""
        asked = UnixAddress(str(self.sockets["service"]), self.accounts.service.uid)
        nodes = Client(Connection(str(asked))).pool()["nodes"]
        found = [lease for node in nodes for card in node["gpus"] for lease in card["leases"]]
        return {int(lease["lease"]): lease["user"] for lease in found}

    def served(self) -> dict[int, str]:
        """Return the user of each lease that a server's process carries."""
        variables = map(environment, self.servers())
        return {int(found["GPUPOOL_LEASE_ID"]): found["JUPYTERHUB_USER"] for found in variables if found}

    def is_open(self) -> bool:
        """Whether the service answers and is open."""
        with contextlib.suppress(OSError, ValueError):
            return bool(
                json.loads(at_socket(self.sockets["hub"], "/services/gpupool/health"))["status"] == "ok"
            )
        return False

    def restart_service(self) -> None:
        """Start the service that was killed, and wait until it is open."""
        self.start_service()
        until(self.is_open, "the service is open", self.tail)

    def kill(self, name: str) -> None:
        """Kill one of the units, and nothing else."""
        self.processes[name].kill()
        self.processes[name].wait()


def at_socket(path: Path, address: str) -> bytes:
    """Send one request without a token."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    with contextlib.closing(connection):
        connection.request("GET", address)
        return connection.getresponse().read()


def environment(pid: int) -> dict[str, str]:
    """Return the environment of a process; empty if it is gone."""
    with contextlib.suppress(OSError):
        items = Path(f"/proc/{pid}/environ").read_text().split("\0")
        return dict(item.split("=", 1) for item in items if "=" in item)
    return {}


def by(account: Account, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program as somebody."""
    return subprocess.run(
        argv,
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def job(*argv: str) -> dict[str, Any]:
    return {"kind": "command", "entry": {"argv": argv}, "resources": {"gpus": 0}, "time": "5m"}


@pytest.fixture(scope="module")
def town(accounts: Accounts, readable_python: Path) -> Iterator[Town]:
    folder = Path(tempfile.mkdtemp(prefix="gpupool-town-", dir="/var/tmp"))
    made = Town(folder, accounts, readable_python)
    server = folder / "jupyterhub-singleuser.py"
    server.write_text(SERVER)
    server.chmod(0o644)
    made.prepare(MORE.format(token=TOKEN, server=server))
    try:
        made.start_launcher()
        made.start_service()
        made.start_hub()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _nothing_left(town: Town) -> Iterator[None]:
    yield
    town.log_out()


@pytest.mark.parametrize("name", ["root", "daemon", "nobody"])
def test_a_name_that_is_no_persons_gets_no_server(town: Town, name: str) -> None:
    town.hub("POST", f"users/{name}")
    status, reply = town.hub("POST", f"users/{name}/server", {})
    assert (status, f"Nothing runs as the account '{name}'" in reply["message"]) == (409, True)
    assert town.servers() == {}


def test_the_token_of_a_server_opens_nothing_but_its_users_own(town: Town) -> None:
    ada, bob = town.accounts.ada, town.accounts.bob
    town.log_in(ada, EIGHTH)
    (server,) = town.servers()
    adas, bobs = environment(server)["JUPYTERHUB_API_TOKEN"], town.token_of(bob)
    (lease,) = (found["id"] for found in town.pool("GET", "leases", token=adas)[1]["leases"])
    status, others = town.pool("POST", "jobs", job("sh", "-c", "echo hidden; sleep 60"), token=bobs)
    assert status == 201
    until(lambda: "hidden" in town.log(others["id"], bobs), "bob sees his log", town.tail)
    spawn = {"user": bob.name, "server": "", "groups": [], "group": None, "slice": "1", "partition": None}
    for method, path, body, wanted in (
        ("POST", "spawns", {**spawn, "wait": True, "version": "0"}, 403),
        ("GET", f"spawns/{lease}", None, 403),
        ("GET", f"spawns/choices?user={bob.name}&groups=", None, 403),
        ("POST", "policy", {"text": "groups: {}"}, 403),
        ("POST", "shutdown", {"keep_jobs": False}, 403),
        ("POST", f"jobs/{others['id']}/cancel", {}, 403),
        ("POST", f"jobs/{others['id']}/progress", {"fraction": 1.0, "values": {}}, 403),
        ("GET", f"jobs/{others['id']}/logs", None, 404),
        ("GET", f"jobs/{others['id']}/artifacts", None, 404),
    ):
        status, reply = town.pool(method, path, body, token=adas)
        assert (status, "error" in reply) == (wanted, True), (method, path, reply)
    for method in ("GET", "DELETE"):
        assert town.pool(method, f"leases/{lease}", token=bobs)[0] == 404
    seen = town.pool("GET", f"jobs/{others['id']}", token=adas)[1]
    assert ("hidden" in str(seen), seen["state"]) == (False, "running")
    assert town.pool("POST", f"jobs/{others['id']}/cancel", {}, token=bobs)[0] == 200


def test_a_jobs_token_speaks_for_its_job_and_no_longer_than_it(town: Town) -> None:
    bobs = town.token_of(town.accounts.bob)
    body = job("sh", "-c", "echo $GPUPOOL_TOKEN; exec sleep 60")
    ours, others = (town.pool("POST", "jobs", body, token=bobs)[1]["id"] for _ in range(2))
    until(lambda: "gpj_" in town.log(ours, bobs), "the job tells its token", town.tail)
    token = town.log(ours, bobs).strip()
    assert town.pool("GET", f"jobs/{ours}", token=token)[0] == 200
    for method, path, body in (
        ("GET", f"jobs/{others}", None),
        ("GET", f"jobs/{ours}/logs", None),
        ("POST", "jobs", job("true")),
        ("GET", "queue", None),
        ("POST", f"jobs/{ours}/cancel", {}),
    ):
        assert town.pool(method, path, body, token=token)[0] == 403, path
    assert town.pool("GET", "whoami", token=token[:-1] + ("0" if token[-1] != "0" else "1"))[0] == 401
    assert request("GET", f"{town.url}/hub/api/user", None, token=token)[0] == 403
    for id in (ours, others):
        town.pool("POST", f"jobs/{id}/cancel", {}, token=bobs)
    until(lambda: town.pool("GET", "whoami", token=token)[0] == 401, "it ends with the job", town.tail)


def test_a_cookie_reads_alone_writes_with_its_page_and_ends_with_the_login(town: Town) -> None:
    person = Person(town, town.accounts.ada.name)  # type: ignore[arg-type]
    assert person.page(f"{API}/whoami")[0] == 200
    stolen = "; ".join(f"{c.name}={c.value}" for c in person.cookies if c.path == "/services/gpupool/")

    def send(method: str, path: str, body: Any = None, **headers: str) -> int:
        asked = urllib.request.Request(
            f"{town.url}{API}/{path}",
            data=body and json.dumps(body).encode(),
            method=method,
            headers={"Cookie": stolen, **headers},
        )
        try:
            with urllib.request.urlopen(asked, timeout=30) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert send("GET", "leases") == 200
    elsewhere = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "cross-site", "Origin": "http://elsewhere"}
    assert send("GET", "leases", **elsewhere) == 403
    assert send("GET", "events", **elsewhere) == 403
    assert send("POST", "jobs", job("true")) == 403
    assert send("POST", "jobs?_xsrf=guess", job("true")) == 403
    assert send("POST", "jobs", job("true"), **{"X-XSRFToken": person.xsrf}) in (201, 403)
    person.page("/hub/logout")
    until(lambda: send("GET", "leases") == 401, "the cookie ends with the login", town.tail)


def test_nobody_takes_the_place_of_what_is_down(town: Town) -> None:
    ada, bob = town.accounts.ada, town.accounts.bob
    for name in ("service", "launcher"):
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(town.sockets[name])!r})"
        assert "PermissionError" in by(ada, str(town.python), "-c", code).stderr
    town.log_in(ada, EIGHTH)
    town.kill("service")
    try:
        hub = town.sockets["hub"]
        for argv in (
            ("rm", "-f", str(hub)),
            ("mv", str(hub.parent), f"{hub.parent}-away"),
            ("ln", "-sfn", "/tmp", str(hub)),
            ("touch", str(town.sockets["launcher"].with_name("launcher.sock2"))),
        ):
            assert by(bob, *argv).returncode != 0, argv
        status, reply = town.hub("POST", f"users/{bob.name}/server", EIGHTH)
        assert (status, "does not answer" in reply["message"]) == (503, True)
        town.hub("DELETE", f"users/{ada.name}/server")
        until(lambda: not town.servers(), "servers end without the service", town.tail)
    finally:
        town.restart_service()


def test_a_policy_that_loses_the_group_of_live_leases_breaks_nothing(town: Town) -> None:
    ada, policy = town.accounts.ada, town.home / "policy.yaml"
    before = policy.read_text()
    town.log_in(ada, EIGHTH)
    try:
        policy.write_text(before.replace("everyone:", "staff:").replace("group: everyone", "group: null"))
        token = town.token_of(ada)
        until(lambda: town.pool("GET", "whoami", token=token)[1]["groups"] == [], "the policy is read")
        assert list(town.leases().values()) == [ada.name]
        for path in ("quota", "queue", "leases", "pool", "report"):
            assert town.pool("GET", path, token=token)[0] == 200, path
        status, reply = town.hub("POST", f"users/{ada.name}/servers/more", EIGHTH)
        assert (status, "no group of the policy" in reply["message"]) == (409, True)
        town.log_in(ada, {}, "cpu")
        assert list(town.leases().values()) == [ada.name]
    finally:
        policy.write_text(before)


def test_servers_and_jobs_outlive_the_hubs_whole_control_group(town: Town) -> None:
    highest = Subtree.at(town.folder).hierarchy.highest()  # type: ignore[union-attr]
    if highest is None:
        pytest.skip("no control group hierarchy can be written here")
    ada = town.accounts.ada
    town.log_in(ada, EIGHTH)
    token = town.token_of(ada)
    _, submitted = town.pool("POST", "jobs", job("sh", "-c", "sleep 2; echo done"), token=token)
    group, hub = highest / f"hub-{os.getpid()}", town.processes["hub"]
    group.mkdir()
    children = Path(f"/proc/{hub.pid}/task/{hub.pid}/children").read_text().split()
    (server,) = town.servers()
    try:
        for pid in (str(hub.pid), *children):
            (group / "cgroup.procs").write_text(pid)
        while pids := (group / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            hub.wait()
    finally:
        group.rmdir()
    town.start_hub()
    assert list(town.servers()) == [server]
    assert town.known(ada)[""]["ready"]

    def ended() -> bool:
        return bool(town.pool("GET", f"jobs/{submitted['id']}", token=token)[1]["state"] == "completed")

    until(ended, "the job completes", town.tail)


def test_nothing_leaks_while_the_service_is_killed_and_people_come_and_go(town: Town) -> None:
    """Whatever is cut short: in the end a lease for every server, and a server for every lease."""
    dice, over = random.Random(1), threading.Event()

    def come_and_go(account: Account, seed: int) -> None:
        own = random.Random(seed)
        while not over.is_set():
            path = f"users/{account.name}/servers/{own.choice(('', 'second'))}"
            with contextlib.suppress(OSError):
                status, reply = town.hub(own.choice(("POST", "POST", "DELETE")), path, EIGHTH)
                assert status < 500 or "Traceback" not in str(reply)
            over.wait(own.random())

    people = [
        threading.Thread(target=come_and_go, args=(account, seed))
        for seed, account in enumerate((town.accounts.ada, town.accounts.bob))
    ]
    for name in (town.accounts.ada.name, town.accounts.bob.name):
        town.hub("POST", f"users/{name}")
    for person in people:
        person.start()
    deadline = time.monotonic() + STORM_S
    while time.monotonic() < deadline:
        time.sleep(dice.uniform(0.1, 2))
        town.kill("service")
        town.start_service()
    over.set()
    for person in people:
        person.join()
    until(town.is_open, "the service is open", town.tail)

    def agree() -> bool:
        known = [*town.known(town.accounts.ada).values(), *town.known(town.accounts.bob).values()]
        settled = all(server["ready"] for server in known)
        return settled and town.leases() == town.served() and len(town.leases()) == len(known)

    until(agree, "Hub, pool and processes agree", lambda: f"{town.leases()} {town.served()}", 90)
