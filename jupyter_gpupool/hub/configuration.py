"""`setup`: the one line of a Hub's configuration that brings the pool.

Owns: what is added to the configuration. Never: replaces what the site has set: that is joined, wrapped
or left alone.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable
from inspect import isawaitable
from pathlib import Path
from typing import Any

import jupyterhub
from jupyterhub.app import JupyterHub
from traitlets import TraitError
from traitlets.config import Config

from jupyter_gpupool.client.names import SERVICE
from jupyter_gpupool.hub import access
from jupyter_gpupool.hub.classes import authenticator_name, lets_anybody_in, proxy_for, spawner_for
from jupyter_gpupool.hub.place import Place, checked_url, place_of, standing_token
from jupyter_gpupool.hub.settings import (
    callback_of,
    current,
    domain_of,
    hub_of,
    prefix_of,
    sections_with,
)
from jupyter_gpupool.spawner.mixin import QUEUE_TIMEOUT_S

OLDEST_HUB = 6
TEMPLATES = Path(__file__).with_name("templates")

File = str | Path | None


def setup(
    c: Config,
    *,
    home: File = None,
    policy: File = None,
    simulate: str | None = None,
    launcher: File = None,
    service_user: str | None = None,
    managed: bool = True,
    url: str | None = None,
    admins: Iterable[str] = (),
    admin_groups: Iterable[str] = (),
    queue_timeout: int = QUEUE_TIMEOUT_S,
    demo: bool = False,
    token_file: File = None,
) -> None:
    """Bring the pool to a JupyterHub; call it last in ``jupyterhub_config.py``.

    Parameters
    ----------
    c
        The Hub's configuration, as ``get_config()`` returns it.
    home
        The service's state folder; by default ``/var/lib/gpupool/service`` for a service with an account of
        its own, else `GPUPOOL_HOME` or the state folder of the Hub's account.
    policy
        The policy file; by default ``policy.yaml`` in `home`.
    simulate
        A simulated pool such as ``4x8x32GiB``.
    launcher
        The state folder of the launcher that root runs; by default the service runs its own in `home`.
    service_user
        The account of the service; needed where root runs the Hub.
    managed
        Whether the Hub runs the service; otherwise something else does, on this host.
    url
        The ``https://`` address of a service on another host.
    admins, admin_groups
        Users, and groups of the Hub, who administer the pool.
    queue_timeout
        Seconds that a login may wait for its slice.
    demo
        Everybody's work may run as one account: for trying out only.
    token_file
        Where the Hub leaves the token for a service that it does not run; made if absent.

    Raises
    ------
    TraitError
        One sentence on what is wrong, with which the Hub ends.
    """
    _refuse_unfit(c, admins, admin_groups, queue_timeout)
    hub = hub_of(c)
    place = None if url else place_of(home, service_user, demo=demo)
    proxy = proxy_for(hub.proxy_class) if place else None
    if place and managed:
        told = _told(hub, place, policy=policy, simulate=simulate, launcher=launcher, demo=demo)
        run: dict[str, Any] = {"command": _command(place), "environment": told}
    else:
        run = _run_elsewhere(hub, place, url, token_file)
    token = secrets.token_hex(32)
    address = place.address if place else run["url"] + prefix_of(hub)

    service = {**_service(hub), **run}
    spawner = {"name": access.SPAWNER, "api_token": token, "display": False}
    c.JupyterHub.services = [*current(c, "services", []), service, spawner]
    _open_access(c, admins, admin_groups)
    _choose_spawner(c, hub, address)
    c.JupyterHub.template_paths = [*current(c, "template_paths", []), str(TEMPLATES)]
    c.GpuPoolMixin.update(pool_url=address, pool_token=token, queue_timeout=queue_timeout)
    if place:
        c.JupyterHub.proxy_class = proxy
        c.PoolRoute.update(pool_socket=str(place.socket), pool_routespec=domain_of(hub) + prefix_of(hub))
        c.LauncherSpawner.launcher_home = _absolute(launcher or place.home)


def _refuse_unfit(c: Config, admins: Iterable[str], admin_groups: Iterable[str], queue_timeout: int) -> None:
    if jupyterhub.version_info[0] < OLDEST_HUB:
        raise TraitError(
            f"The pool needs JupyterHub {OLDEST_HUB} or newer; this is {jupyterhub.__version__}."
        )
    if any(spec.get("name") == SERVICE for spec in current(c, "services", [])):
        raise TraitError(f"The Hub has a service {SERVICE!r} already: call setup(c) once.")
    for name, value in {"admins": admins, "admin_groups": admin_groups}.items():
        if isinstance(value, str):
            raise TraitError(f"{name} is a list of names: write {name}=[{value!r}].")
    if not isinstance(queue_timeout, int) or queue_timeout < 0:
        raise TraitError(f"queue_timeout is a number of seconds, not {queue_timeout!r}.")


def _service(hub: JupyterHub) -> dict[str, Any]:
    """Return what the Hub must know of the service, whoever runs it."""
    return {
        "name": SERVICE,
        "display": False,
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": list(access.CLIENT_SCOPES),
        "oauth_redirect_uri": callback_of(hub),
    }


def _command(place: Place) -> list[str]:
    serve = [sys.executable, "-m", "jupyter_gpupool.app", "serve"]
    if place.account.name:
        return [sys.executable, "-m", "jupyter_gpupool.hub.become", place.account.name, *serve]
    return serve + (["--allow-root"] if os.geteuid() == 0 else [])


def _told(
    hub: JupyterHub, place: Place, *, policy: File, simulate: str | None, launcher: File, demo: bool
) -> dict[str, str]:
    """Return what a managed service is told; the Hub says the rest, but not what follows from a URL."""
    told = {
        "GPUPOOL_HOME": str(place.home),
        "GPUPOOL_HUB_SOCKET": str(place.socket),
        "GPUPOOL_HUB_AUTHENTICATOR": authenticator_name(hub.authenticator_class),
        "JUPYTERHUB_SERVICE_PREFIX": prefix_of(hub),
        "JUPYTERHUB_OAUTH_CALLBACK_URL": callback_of(hub),
        "GPUPOOL_POLICY": _absolute(policy) if policy else "",
        "GPUPOOL_SIMULATE": simulate or "",
        "GPUPOOL_LAUNCHER": _absolute(launcher) if launcher else "",
        "GPUPOOL_DEMO": "1" if demo else "",
    }
    return {name: value for name, value in told.items() if value}


def _run_elsewhere(hub: JupyterHub, place: Place | None, url: str | None, token_file: File) -> dict[str, str]:
    """Return how the Hub knows a service that it does not start, and cannot tell anything."""
    if lets_anybody_in(hub.authenticator_class):
        raise TraitError("DummyAuthenticator lets anybody log in as anybody: use another one with this pool.")
    where = {"url": checked_url(url)} if url else {}
    return {**where, "api_token": standing_token(token_file, place.account if place else None)}


def _absolute(path: str | Path) -> str:
    return str(Path(path).absolute())


def _open_access(c: Config, admins: Iterable[str], admin_groups: Iterable[str]) -> None:
    """Give users, their servers, the service and the Hub itself what they need."""
    c.JupyterHub.custom_scopes = {**access.CUSTOM_SCOPES, **current(c, "custom_scopes", {})}
    roles = current(c, "load_roles", [])
    if access.redefines_users(roles):
        roles = access.with_scopes(roles, "user", access.USER_SCOPES)
    else:
        c.JupyterHub.extra_user_scopes = current(c, "extra_user_scopes", set()) | set(access.USER_SCOPES)
    roles = access.with_scopes(roles, "server", access.USER_SCOPES)
    for role in access.pool_roles(admins, admin_groups):
        roles = access.with_role(roles, role)
    c.JupyterHub.load_roles = roles


def _choose_spawner(c: Config, hub: JupyterHub, address: str) -> None:
    """Put the pool into the spawner, and its address and scopes into every server."""
    spawner = spawner_for(hub.spawner_class)
    c.JupyterHub.spawner_class = spawner
    told = {"GPUPOOL_URL": address, "GPUPOOL_HUB_URL": address}
    for section in list(sections_with(c, "environment", spawner)) or ["Spawner"]:
        c[section].environment = {**current(c, "environment", {}, section), **told}
    for section in sections_with(c, "server_token_scopes", spawner):
        c[section].server_token_scopes = _with_pool_scopes(c[section].server_token_scopes)


def _with_pool_scopes(chosen: Any) -> Any:
    """Return a site's scopes of servers, or its function for them, with the pool's."""
    if not callable(chosen):
        return access.union(chosen, access.USER_SCOPES) if chosen else chosen

    async def scopes(spawner: Any) -> Any:
        found = chosen(spawner)
        if isawaitable(found):
            found = await found
        return access.union(found, access.USER_SCOPES) if found else found

    return scopes
