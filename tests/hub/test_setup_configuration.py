"""`setup(c)` on bare and busy configurations, without a Hub: what is added, joined, wrapped, refused."""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
import sys
from pathlib import Path
from typing import Any

import jupyterhub
import pytest
from jupyterhub.auth import DummyAuthenticator, PAMAuthenticator
from jupyterhub.proxy import ConfigurableHTTPProxy, Proxy
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner
from traitlets import TraitError
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from jupyter_gpupool.client.address import UnixAddress, parse
from jupyter_gpupool.hub import setup
from jupyter_gpupool.hub.proxy import PoolRoute
from jupyter_gpupool.spawner import GpuPoolLocalSpawner, GpuPoolMixin

DEFAULT_SERVER_SCOPES = {"users:activity!user", "access:servers!server"}
POOL = {"access:services!service=gpupool", "custom:gpupool:submit", "custom:gpupool:manage"}


class SiteSpawner(LocalProcessSpawner):
    """A site's own spawner."""


class SiteProxy(ConfigurableHTTPProxy):
    """A site's own proxy."""


class OtherProxy(Proxy):
    """A proxy that knows nothing of sockets."""


class SiteDummy(DummyAuthenticator):
    """Still lets anybody be anybody."""


@pytest.fixture
def bare(tmp_path: Path) -> Config:
    return set_up(Config(), tmp_path)


def set_up(c: Config, home: Path, **options: Any) -> Config:
    setup(c, **{"home": home, "demo": True, **options})
    return c


def service(c: Config, name: str = "gpupool") -> dict[str, Any]:
    (found,) = [spec for spec in c.JupyterHub.services if spec["name"] == name]
    return found


def role(c: Config, name: str) -> dict[str, Any]:
    (found,) = [spec for spec in c.JupyterHub.load_roles if spec["name"] == name]
    return found


def refusal(c: Config, **options: Any) -> str:
    before = repr(c)
    with pytest.raises(TraitError) as caught:
        setup(c, **options)
    assert repr(c) == before, "a refusal changes nothing"
    return str(caught.value)


# -- a bare configuration --------------------------------------------------------------------------


def test_the_hub_runs_the_service_and_tells_it_what_follows_from_its_url(bare: Config, tmp_path: Path):
    found = service(bare)
    assert found["command"][:4] == [sys.executable, "-m", "jupyter_gpupool.app", "serve"]
    assert found["environment"] == {
        "GPUPOOL_HOME": str(tmp_path),
        "GPUPOOL_HUB_SOCKET": str(tmp_path / "hub" / "hub.sock"),
        "GPUPOOL_HUB_AUTHENTICATOR": "PAMAuthenticator",
        "GPUPOOL_DEMO": "1",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/gpupool/",
        "JUPYTERHUB_OAUTH_CALLBACK_URL": "/services/gpupool/oauth_callback",
    }
    assert found["oauth_redirect_uri"] == "/services/gpupool/oauth_callback"
    assert "url" not in found, "no token ever goes to a port"
    assert found["display"] is False


def test_options_reach_the_service(tmp_path: Path):
    c = set_up(Config(), tmp_path, policy="/etc/p.yaml", simulate="1x2x8GiB", launcher="/l", demo=False,
               service_user=pwd.getpwuid(os.geteuid()).pw_name)  # fmt: skip
    told = service(c)["environment"]
    assert told["GPUPOOL_POLICY"] == "/etc/p.yaml"
    assert told["GPUPOOL_SIMULATE"] == "1x2x8GiB"
    assert told["GPUPOOL_LAUNCHER"] == "/l"
    assert "GPUPOOL_DEMO" not in told
    assert c.LauncherSpawner.launcher_home == "/l"


def test_servers_and_spawner_get_an_address_that_names_the_account(bare: Config, tmp_path: Path):
    address = f"unix:{tmp_path}/hub/hub.sock?uid={os.geteuid()}"
    assert bare.Spawner.environment == {"GPUPOOL_URL": address, "GPUPOOL_HUB_URL": address}
    assert bare.GpuPoolMixin.pool_url == address
    assert bare.LauncherSpawner.launcher_home == str(tmp_path)
    assert parse(address) == UnixAddress(f"{tmp_path}/hub/hub.sock", os.geteuid())


def test_only_the_hub_holds_the_token_that_leases_for_others(bare: Config, tmp_path: Path):
    token = bare.GpuPoolMixin.pool_token
    assert service(bare, "gpupool-spawner") == {
        "name": "gpupool-spawner",
        "api_token": token,
        "display": False,
    }
    assert len(token) >= 32
    assert token not in repr(service(bare)), "not even the service is told"
    assert token not in repr(bare.Spawner)
    assert set_up(Config(), tmp_path).GpuPoolMixin.pool_token != token
    assert role(bare, "gpupool-spawner")["scopes"] == [
        "access:services!service=gpupool",
        "custom:gpupool:spawn",
    ]


def test_users_and_their_servers_hold_what_they_need_and_no_more(bare: Config):
    assert bare.JupyterHub.extra_user_scopes == POOL
    assert set(role(bare, "server")["scopes"]) == DEFAULT_SERVER_SCOPES | POOL
    assert set(bare.JupyterHub.custom_scopes) == {
        f"custom:gpupool:{name}" for name in ("submit", "manage", "read:all", "admin", "spawn")
    }
    assert "custom:gpupool:spawn" not in service(bare)["oauth_client_allowed_scopes"]


def test_administrators_are_those_who_are_named(tmp_path: Path):
    c = set_up(Config(), tmp_path, admins=["ada"], admin_groups=["ops"])
    found = role(c, "gpupool-admin")
    assert (found["users"], found["groups"]) == (["ada"], ["ops"])
    assert {"custom:gpupool:admin", "custom:gpupool:read:all"} <= set(found["scopes"])


def test_the_usual_proxy_gets_the_route(bare: Config, tmp_path: Path):
    assert bare.JupyterHub.proxy_class is PoolRoute
    assert bare.PoolRoute.pool_socket == str(tmp_path / "hub" / "hub.sock")
    assert bare.PoolRoute.pool_routespec == "/services/gpupool/"


# -- what a site has already ------------------------------------------------------------------------


@pytest.mark.parametrize("lazy", [False, True], ids=["assigned", "appended"])
def test_services_roles_scopes_and_environment_of_a_site_stay(tmp_path: Path, lazy: bool):
    c = Config()
    theirs = {"name": "idle-culler", "command": ["cull"]}
    teacher = {"name": "teacher", "scopes": ["self"], "users": ["ada"]}
    custom = {"custom:grades:read": {"description": "Read grades"}}
    if lazy:
        c.JupyterHub.services.append(theirs)
        c.JupyterHub.load_roles.append(teacher)
        c.JupyterHub.custom_scopes.update(custom)
        c.JupyterHub.extra_user_scopes.add("shares!user")
        c.Spawner.environment.update({"PROXY": "here"})
        assert isinstance(c.JupyterHub.services, LazyConfigValue)
    else:
        c.JupyterHub.services = [theirs]
        c.JupyterHub.load_roles = [teacher]
        c.JupyterHub.custom_scopes = custom
        c.JupyterHub.extra_user_scopes = {"shares!user"}
        c.Spawner.environment = {"PROXY": "here"}
    set_up(c, tmp_path)
    assert c.JupyterHub.services[0] == theirs
    assert teacher in c.JupyterHub.load_roles
    assert custom.items() <= c.JupyterHub.custom_scopes.items()
    assert c.JupyterHub.extra_user_scopes == {"shares!user"} | POOL
    assert c.Spawner.environment["PROXY"] == "here"
    assert c.Spawner.environment["GPUPOOL_HUB_URL"]


def test_a_sites_server_and_user_roles_are_joined(tmp_path: Path):
    c = Config()
    c.JupyterHub.load_roles = [
        {"name": "server", "description": "ours", "scopes": ["inherit"]},
        {"name": "user", "scopes": ["self", "read:users:name"]},
        {"name": "gpupool-admin", "users": ["root"], "description": "mine"},
    ]
    set_up(c, tmp_path, admins=["ada"])
    assert role(c, "server")["description"] == "ours"
    assert set(role(c, "server")["scopes"]) == {"inherit"} | POOL
    assert set(role(c, "user")["scopes"]) == {"self", "read:users:name"} | POOL
    assert role(c, "gpupool-admin")["users"] == ["root", "ada"]
    assert role(c, "gpupool-admin")["description"] == "mine"
    assert "extra_user_scopes" not in c.JupyterHub, "the Hub would warn that it ignores them"


def test_a_described_user_role_without_scopes_leaves_the_hubs_own(tmp_path: Path):
    c = Config()
    c.JupyterHub.load_roles = [{"name": "user", "description": "people"}]
    set_up(c, tmp_path)
    assert role(c, "user") == {"name": "user", "description": "people"}
    assert c.JupyterHub.extra_user_scopes == POOL


def test_an_environment_of_a_more_specific_spawner_does_not_hide_the_pool(tmp_path: Path):
    c = Config()
    c.JupyterHub.spawner_class = "simple"
    c.Spawner.environment = {"A": "1"}
    c.SimpleLocalProcessSpawner.environment = {"B": "2"}
    set_up(c, tmp_path)
    spawner = c.JupyterHub.spawner_class(config=c)
    assert spawner.environment["B"] == "2"
    assert spawner.environment["GPUPOOL_URL"] == c.GpuPoolMixin.pool_url


@pytest.mark.parametrize("kind", ["list", "function", "coroutine"])
def test_scopes_that_a_site_gives_its_servers_are_joined(tmp_path: Path, kind: str):
    def chosen(spawner: Any) -> list[str]:
        return ["inherit"]

    async def later(spawner: Any) -> list[str]:
        return ["inherit"]

    c = Config()
    c.Spawner.server_token_scopes = {"list": ["inherit"], "function": chosen, "coroutine": later}[kind]
    set_up(c, tmp_path)
    found = c.Spawner.server_token_scopes
    found = asyncio.run(found(None)) if callable(found) else found
    assert set(found) == {"inherit"} | POOL


def test_no_scopes_of_a_sites_own_still_mean_the_server_role(tmp_path: Path):
    c = Config()
    c.Spawner.server_token_scopes = lambda spawner: []
    set_up(c, tmp_path)
    assert asyncio.run(c.Spawner.server_token_scopes(None)) == []


@pytest.mark.parametrize("chosen", [None, "localprocess", LocalProcessSpawner, "gpupool-local"])
def test_the_hubs_default_spawner_becomes_the_pools(tmp_path: Path, chosen: Any):
    c = Config()
    if chosen:
        c.JupyterHub.spawner_class = chosen
    assert set_up(c, tmp_path).JupyterHub.spawner_class is GpuPoolLocalSpawner


@pytest.mark.parametrize("chosen", ["simple", SiteSpawner, f"{__name__}.SiteSpawner"])
def test_a_sites_spawner_gets_the_pool_mixed_in(tmp_path: Path, chosen: Any):
    if isinstance(chosen, str) and "." in chosen:
        sys.modules.setdefault(__name__, sys.modules[SiteSpawner.__module__])
    c = Config()
    c.JupyterHub.spawner_class = chosen
    found = set_up(c, tmp_path).JupyterHub.spawner_class
    assert issubclass(found, GpuPoolMixin)
    assert issubclass(found, SimpleLocalProcessSpawner if chosen == "simple" else LocalProcessSpawner)
    assert found.mro()[1] is GpuPoolMixin


def test_a_sites_proxy_gets_the_route_mixed_in(tmp_path: Path):
    c = Config()
    c.JupyterHub.proxy_class = SiteProxy
    found = set_up(c, tmp_path).JupyterHub.proxy_class
    assert issubclass(found, PoolRoute)
    assert issubclass(found, SiteProxy)


# -- URLs -------------------------------------------------------------------------------------------


def test_a_sites_own_pages_come_first(tmp_path: Path):
    c = Config()
    c.JupyterHub.template_paths = ["/srv/pages"]
    first, second = set_up(c, tmp_path).JupyterHub.template_paths
    assert first == "/srv/pages"
    assert (Path(second) / "spawn_pending.html").exists()


@pytest.mark.parametrize(
    "site",
    [
        {"base_url": "/jupyter"},
        {"bind_url": "http://127.0.0.1:8000/jupyter/"},
        {"base_url": "jupyter/", "port": 81},
    ],
)
def test_the_hubs_base_url_is_in_every_path(tmp_path: Path, site: dict[str, Any]):
    c = set_up(Config({"JupyterHub": site}), tmp_path)
    assert c.PoolRoute.pool_routespec == "/jupyter/services/gpupool/"
    assert service(c)["oauth_redirect_uri"] == "/jupyter/services/gpupool/oauth_callback"
    assert service(c)["environment"]["JUPYTERHUB_SERVICE_PREFIX"] == "/jupyter/services/gpupool/"


def test_a_hub_with_a_domain_for_everybody(tmp_path: Path):
    c = Config({"JupyterHub": {"subdomain_host": "https://hub.example:8443"}})
    set_up(c, tmp_path)
    assert c.PoolRoute.pool_routespec == "gpupool--service.hub.example/services/gpupool/"
    assert service(c)["oauth_redirect_uri"] == (
        "https://gpupool--service.hub.example:8443/services/gpupool/oauth_callback"
    )


# -- services that the Hub does not run -----------------------------------------------------------------


def test_an_external_service_finds_its_token_in_a_file(tmp_path: Path):
    file = tmp_path / "token"
    c = set_up(Config(), tmp_path / "home", managed=False, token_file=file)
    found = service(c)
    assert "command" not in found
    assert found["api_token"] == file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = set_up(Config(), tmp_path / "home", managed=False, token_file=file)
    assert service(again)["api_token"] == found["api_token"], "the service goes on with the token it has"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_token_of_an_external_service_is_for_its_account_alone(tmp_path: Path):
    nobody = pwd.getpwnam("nobody")
    file = tmp_path / "token"
    set_up(Config(), tmp_path, managed=False, token_file=file, service_user="nobody", demo=False)
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, nobody.pw_gid, 0o640)


def test_a_service_on_another_host_needs_no_route(tmp_path: Path):
    c = set_up(Config(), tmp_path, url="https://gpu.example/", token_file=tmp_path / "token", demo=False)
    assert service(c)["url"] == "https://gpu.example"
    assert c.GpuPoolMixin.pool_url == "https://gpu.example/services/gpupool/"
    assert c.Spawner.environment["GPUPOOL_HUB_URL"] == c.GpuPoolMixin.pool_url
    assert "proxy_class" not in c.JupyterHub


# -- refusals ---------------------------------------------------------------------------------------


def test_twice(bare: Config, tmp_path: Path):
    assert "call setup(c) once" in refusal(bare, home=tmp_path, demo=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"admins": "ada"}, "admins is a list of names: write admins=['ada']."),
        ({"admin_groups": "ops"}, "admin_groups is a list of names: write admin_groups=['ops']."),
        ({"queue_timeout": "12h"}, "queue_timeout is a number of seconds, not '12h'."),
        ({"queue_timeout": -1}, "queue_timeout is a number of seconds, not -1."),
    ],
)
def test_a_parameter_that_is_no_list_or_number(tmp_path: Path, options: dict[str, Any], sentence: str):
    assert refusal(Config(), home=tmp_path, demo=True, **options) == sentence


def test_relative_paths_are_the_hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The service may start in another folder."""
    monkeypatch.chdir(tmp_path)
    c = set_up(Config(), Path("home"), policy="p.yaml", launcher="l")
    told = service(c)["environment"]
    assert told["GPUPOOL_HOME"] == str(tmp_path / "home")
    assert told["GPUPOOL_POLICY"] == str(tmp_path / "p.yaml")
    assert told["GPUPOOL_LAUNCHER"] == c.LauncherSpawner.launcher_home == str(tmp_path / "l")


def test_an_old_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(jupyterhub, "version_info", (5, 4, 6, "", ""))
    monkeypatch.setattr(jupyterhub, "__version__", "5.4.6")
    assert (
        refusal(Config(), home=tmp_path, demo=True) == "The pool needs JupyterHub 6 or newer; this is 5.4.6."
    )


def test_a_folder_whose_name_is_too_long_for_a_socket(tmp_path: Path):
    assert "too many for a socket" in refusal(Config(), home=tmp_path / ("x" * 100), demo=True)


def test_an_account_that_is_not_there():
    assert "no account 'no-such-account'" in refusal(Config(), service_user="no-such-account")


@pytest.mark.skipif(os.geteuid() != 0, reason="a Hub that root runs")
def test_a_service_that_would_run_as_root():
    assert "service_user='gpupool'" in refusal(Config())


def test_another_account_for_a_hub_that_is_not_roots(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "Only a Hub that root runs" in refusal(Config(), service_user="nobody")


@pytest.mark.parametrize("url", ["http://gpu.example", "http://127.0.0.1:8888", "unix:/x"])
def test_an_address_that_could_lose_tokens(url: str, tmp_path: Path):
    assert "in the clear" in refusal(Config(), url=url, token_file=tmp_path / "token")


def test_an_external_service_without_a_file_for_its_token(tmp_path: Path):
    assert "token_file" in refusal(Config(), home=tmp_path, managed=False, demo=True)


def test_a_token_that_everybody_can_read(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("x" * 32)
    file.chmod(0o644)
    said = refusal(Config(), home=tmp_path, managed=False, demo=True, token_file=file)
    assert said == f"{file} is open to everybody; close it with: chmod o= {file}"


def test_a_token_in_a_folder_that_is_not_there(tmp_path: Path):
    said = refusal(Config(), home=tmp_path, managed=False, demo=True, token_file=tmp_path / "no" / "token")
    assert said.endswith("No such file or directory.")


def test_a_proxy_that_cannot_reach_a_socket(tmp_path: Path):
    c = Config()
    c.JupyterHub.proxy_class = OtherProxy
    assert "OtherProxy cannot reach the pool's Unix socket" in refusal(c, home=tmp_path, demo=True)


@pytest.mark.parametrize("chosen", ["dummy", SiteDummy])
def test_anybody_as_anybody_is_said_to_a_managed_service_and_refused_for_another(tmp_path: Path, chosen: Any):
    c = Config()
    c.JupyterHub.authenticator_class = chosen
    said = refusal(c, home=tmp_path, managed=False, token_file=tmp_path / "t", demo=True)
    assert "DummyAuthenticator" in said
    set_up(c, tmp_path)
    assert service(c)["environment"]["GPUPOOL_HUB_AUTHENTICATOR"] == "DummyAuthenticator"


def test_other_authenticators_go_by_their_name(tmp_path: Path):
    c = Config()
    c.JupyterHub.authenticator_class = PAMAuthenticator
    told = service(set_up(c, tmp_path))["environment"]
    assert told["GPUPOOL_HUB_AUTHENTICATOR"] == "PAMAuthenticator"
