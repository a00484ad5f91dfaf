"""`setup(c)` in a real Hub with its real proxy: routes, tokens, roles; a Hub that outlives its service."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest_accounts import Accounts
from tests.hub.process import HubProcess, request, until
from tests.hub.site import Person

POOL = {"access:services!service=gpupool", "custom:gpupool:submit", "custom:gpupool:manage"}
BECOME = [sys.executable, "-m", "jupyter_gpupool.hub.become"]
BEFORE = """
import os, sys
from jupyterhub.spawner import LocalProcessSpawner
from jupyter_gpupool.hub import setup

c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}{base}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.services.append({{"name": "test", "api_token": "{token}"}})
scopes = ["admin:users", "admin:servers", "admin:groups", "tokens", "proxy", "read:services", "list:services"]
c.JupyterHub.load_roles.append({{"name": "test", "services": ["test"], "scopes": scopes}})
"""
STUB = """
pool = next(spec for spec in c.JupyterHub.services if spec["name"] == "gpupool")
pool["command"] = [sys.executable, "-m", "tests.hub.stub_service"]
"""
BUSY = """
class SiteSpawner(LocalProcessSpawner):
    pass

c.JupyterHub.spawner_class = SiteSpawner
c.JupyterHub.load_groups = {{"ops": {{"users": ["gita"]}}, "vision": {{"users": ["ada"]}}}}
c.JupyterHub.load_roles.append({{"name": "server", "description": "the site's", "scopes": ["inherit"]}})
c.JupyterHub.custom_scopes.update({{"custom:grades:read": {{"description": "Read grades"}}}})
c.JupyterHub.extra_user_scopes.add("custom:grades:read")
c.Proxy.extra_routes = {{"/elsewhere/": "http://127.0.0.1:9"}}
"""


class Hub(HubProcess):
    """A Hub whose service is the tests' own."""

    @property
    def environment(self) -> Mapping[str, str]:
        return {**super().environment, "PYTHONPATH": str(Path.cwd())}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A Hub below /base, with a spawner, groups, roles, scopes and a route of the site's own."""
    folder = tmp_path_factory.mktemp("busy")
    line = f"setup(c, home={str(folder / 'home')!r}, demo=True, admins=['ada'], admin_groups=['ops'])\n"
    keep = f"open({str(folder / 'spawner-token')!r}, 'w').write(c.GpuPoolMixin.pool_token)\n"
    hub = Hub(folder, BEFORE + BUSY + line + keep + STUB, base="/base/")
    try:
        hub.start()
        until(lambda: hub.service("GET", "told")[0] == 200, "the service answers", hub.said)
        yield hub
    finally:
        hub.stop()


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    made: list[Hub] = []

    def make(text: str, **parts: Any) -> Hub:
        made.append(Hub(tmp_path, text, **parts))
        return made[-1]

    yield make
    for hub in made:
        hub.stop()


def scopes(busy: Hub, token: str) -> set[str]:
    status, who = busy.service("GET", "who", token=token)
    assert status == 200, who
    return set(who["scopes"])


def test_the_proxy_has_the_sites_route_and_the_pools_socket(busy: Hub):
    routes = {spec: route["target"] for spec, route in busy.granted("GET", "proxy").items()}
    socket = str(busy.folder / "home" / "hub" / "hub.sock").replace("/", "%2F")
    assert routes["/base/services/gpupool/"] == f"http+unix://{socket}"
    assert routes["/elsewhere/"] == "http://127.0.0.1:9"


def test_the_service_is_told_where_it_is(busy: Hub):
    _, told = busy.service("GET", "told")
    assert told["JUPYTERHUB_SERVICE_PREFIX"] == "/base/services/gpupool/"
    assert told["JUPYTERHUB_OAUTH_CALLBACK_URL"] == "/base/services/gpupool/oauth_callback"
    assert told["JUPYTERHUB_CLIENT_ID"] == "service-gpupool"
    assert told["JUPYTERHUB_API_URL"].endswith("/base/hub/api")
    assert told["JUPYTERHUB_API_TOKEN"]


def test_the_hub_lists_no_page_of_the_service(busy: Hub):
    found = busy.granted("GET", "services")
    assert found["gpupool"]["display"] is False
    assert found["gpupool-spawner"]["command"] == []


def test_a_users_token_holds_what_users_need(busy: Hub):
    found = scopes(busy, busy.token_of("bob"))
    assert found >= POOL | {"custom:grades:read"}
    assert not found & {"custom:gpupool:admin", "custom:gpupool:read:all", "custom:gpupool:spawn"}


@pytest.mark.parametrize("user", ["ada", "gita"], ids=["named", "by group"])
def test_an_administrators_token_holds_more(busy: Hub, user: str):
    found = scopes(busy, busy.token_of(user))
    assert {"custom:gpupool:admin", "custom:gpupool:read:all"} <= found
    assert "custom:gpupool:spawn" not in found


def test_the_hubs_own_token_is_the_one_that_leases_for_others(busy: Hub):
    _, who = busy.service("GET", "who", token=(busy.folder / "spawner-token").read_text())
    assert (who["kind"], who["name"]) == ("service", "gpupool-spawner")
    assert set(who["scopes"]) == {"access:services!service=gpupool", "custom:gpupool:spawn"}


def test_the_services_own_token_sees_users_groups_and_servers_and_nothing_else(busy: Hub):
    _, told = busy.service("GET", "told")
    status, users = request("GET", f"{busy.url}/hub/api/users", None, token=told["JUPYTERHUB_API_TOKEN"])
    assert status == 200
    assert {user["name"]: user["groups"] for user in users}["ada"] == ["vision"]
    assert all(user["servers"] == {} for user in users)
    body = {"note": "x"}
    status, _ = request(
        "POST", f"{busy.url}/hub/api/users/ada/tokens", body, token=told["JUPYTERHUB_API_TOKEN"]
    )
    assert status in (403, 404)


def test_the_sites_server_role_is_joined_in_the_hubs_database(busy: Hub):
    with contextlib.closing(sqlite3.connect(busy.folder / "jupyterhub.sqlite")) as database:
        found = dict(database.execute("select name, scopes from roles"))
    assert set(json.loads(found["server"])) == {"inherit"} | POOL
    assert set(json.loads(found["user"])) == {"self", "custom:grades:read"} | POOL


def test_a_browser_is_led_through_the_login_below_the_base_url(busy: Hub):
    status, page = Person(busy, "carl").page("/services/gpupool/who")
    assert status == 200
    assert json.loads(page)["name"] == "carl"


def test_events_come_through_the_socket_as_they_are_sent(busy: Hub):
    connection = http.client.HTTPConnection("127.0.0.1", busy.port, timeout=30)
    connection.request("GET", "/base/services/gpupool/stream")
    stream = connection.getresponse()
    assert stream.readline() == b"data: first\n"
    request("POST", f"{busy.url}/services/gpupool/stream", {}, token="none")
    assert stream.read().endswith(b"data: second\n\n")


def test_a_proxy_that_died_has_its_routes_again_with_the_next(busy: Hub):
    hub = busy.process.pid
    children = Path(f"/proc/{hub}/task/{hub}/children").read_text().split()
    (proxy,) = [
        int(pid)
        for pid in children
        if b"configurable-http-proxy" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(proxy, signal.SIGKILL)

    def is_back() -> bool:
        with contextlib.suppress(OSError):
            return busy.service("GET", "told")[0] == 200
        return False

    until(is_back, "the way to the pool is back", busy.said)
    assert "/elsewhere/" in busy.granted("GET", "proxy")


def test_without_its_service_the_hub_answers_and_says_so(busy: Hub):
    """Last of those that share the Hub: the service comes back only when the Hub looks again."""
    _, told = busy.service("GET", "told")
    os.kill(told["pid"], signal.SIGKILL)
    until(lambda: busy.service("GET", "told")[0] == 503, "the proxy notices", busy.said)
    assert busy.answers()
    assert busy.granted("GET", "users")


def test_the_hub_lives_on_when_its_service_cannot_start(make_hub: Callable[..., Hub], tmp_path: Path):
    """As on a machine whose directory of accounts is away: the Hub itself would end of a failed command."""
    become = [*BECOME, "no-such-account", sys.executable]
    line = f"setup(c, home={str(tmp_path / 'home')!r}, demo=True)\n"
    hub = make_hub(BEFORE + line + STUB + f"pool['command'] = {become!r}\n").start()
    until(lambda: "this machine has no account 'no-such-account'" in hub.said(), "it says why", hub.said)
    assert hub.service("GET", "health")[0] == 503
    assert hub.answers()


def test_a_base_url_of_the_command_line_counts(make_hub: Callable[..., Hub], tmp_path: Path):
    text = BEFORE.replace("{base}", "") + f"setup(c, home={str(tmp_path / 'home')!r}, demo=True)\n" + STUB
    hub = make_hub(text, base="/cli/").start("--JupyterHub.base_url=/cli/")
    until(lambda: hub.service("GET", "told")[0] == 200, "the service answers", hub.said)
    assert hub.service("GET", "told")[1]["JUPYTERHUB_SERVICE_PREFIX"] == "/cli/services/gpupool/"


def test_a_hub_that_gives_everybody_a_domain_routes_the_services_too(
    make_hub: Callable[..., Hub], tmp_path: Path
):
    text = BEFORE + f"setup(c, home={str(tmp_path / 'home')!r}, demo=True)\n" + STUB
    hub = make_hub(text).launch("--JupyterHub.subdomain_host=http://hub.example:8000")

    def told() -> Any:
        asked = urllib.request.Request(f"{hub.url}/services/gpupool/told")
        asked.add_header("Host", "gpupool--service.hub.example:8000")
        assert hub.process.poll() is None, hub.said()
        with contextlib.suppress(OSError):
            return json.loads(urllib.request.urlopen(asked, timeout=5).read())

    until(told, "the service answers", hub.said)
    callback = "http://gpupool--service.hub.example:8000/services/gpupool/oauth_callback"
    assert told()["JUPYTERHUB_OAUTH_CALLBACK_URL"] == callback


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("setup(c, home={home!r}, demo=True)\n" * 2, "has a service 'gpupool' already: call setup(c) once."),
        (
            "setup(c, home={home!r}, demo=True)\nc.JupyterHub.services = []\n",
            "c.JupyterHub.services was replaced after",
        ),
        (
            "setup(c, home={home!r}, demo=True)\nc.JupyterHub.base_url = '/other/'\n",
            "The Hub's base_url became /other/ after",
        ),
    ],
    ids=["twice", "services replaced", "base_url changed"],
)
def test_a_mistake_in_the_configuration_ends_the_hub_with_a_sentence(
    make_hub: Callable[..., Hub], tmp_path: Path, lines: str, sentence: str
):
    hub = make_hub(BEFORE + lines.format(home=str(tmp_path / "home"))).launch()
    assert hub.process.wait(60) == 1
    assert sentence in hub.said()
    assert "Traceback" not in hub.said()


def test_the_service_becomes_its_account_for_good(accounts: Accounts):
    program = (
        "import os; print(os.getresuid(), os.getresgid(), os.getgroups(), os.getcwd(), os.environ['HOME'])"
    )
    command = [
        sys.executable,
        "-m",
        "jupyter_gpupool.hub.become",
        accounts.ada.name,
        "/usr/bin/python3",
        "-c",
    ]
    said = subprocess.run([*command, program], capture_output=True, text=True, check=True).stdout.strip()
    uid, gid = accounts.ada.uid, accounts.ada.gid
    assert said == f"{(uid,) * 3} {(gid,) * 3} {[gid]} / {accounts.ada.home}"


def test_a_program_that_the_account_cannot_execute_is_a_sentence(accounts: Accounts):
    done = subprocess.run([*BECOME, accounts.ada.name, "/no/such/python"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"The pool's service cannot start as {accounts.ada.name!r}: /no/such/python: "
    )
