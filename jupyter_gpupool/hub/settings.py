"""What a Hub's configuration says so far, and how something is added to it.

Owns: reading values that the site has set, appended to, or left alone; the classes and URLs that follow
from them. Never: what the pool adds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from jupyterhub.app import JupyterHub
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from jupyter_gpupool.client.names import PREFIX, SERVICE

Container = TypeVar("Container", list[Any], dict[str, Any], set[str])

_DECIDING = (
    *("bind_url", "ip", "port", "base_url", "ssl_cert", "subdomain_host", "subdomain_hook"),
    *("spawner_class", "proxy_class", "authenticator_class"),
)


def hub_of(c: Config) -> JupyterHub:
    """Return a Hub, not started, that has read what decides on its URLs and classes.

    Raises
    ------
    traitlets.TraitError
        One of these settings is wrong; the Hub itself would say the same.
    """
    told = Config({"JupyterHub": {name: c.JupyterHub[name] for name in _DECIDING if has(c, name)}})
    if JupyterHub.initialized():
        told.merge(JupyterHub.instance().cli_config)
    return JupyterHub(config=told, log=logging.getLogger("gpupool"))


def prefix_of(hub: JupyterHub) -> str:
    """Return the path of the pool's service on a Hub, such as ``/services/gpupool/``."""
    return f"{hub.base_url.rstrip('/')}{PREFIX}/"


def domain_of(hub: JupyterHub) -> str:
    """Return the service's own domain; empty where the Hub does not give everybody one."""
    if not hub.subdomain_host:
        return ""
    return str(hub.subdomain_hook(SERVICE, urlsplit(hub.subdomain_host).hostname, kind="service"))


def callback_of(hub: JupyterHub) -> str:
    """Return where people come back to the service after their login."""
    origin = ""
    if hub.subdomain_host:
        public = urlsplit(hub.subdomain_host)
        origin = f"{public.scheme}://{domain_of(hub)}" + (f":{public.port}" if public.port else "")
    return f"{origin}{prefix_of(hub)}oauth_callback"


def has(c: Config, name: str, section: str = "JupyterHub") -> bool:
    """Whether the site has set `section.name`."""
    return f"{section}.{name}" in c


def current(c: Config, name: str, empty: Container, section: str = "JupyterHub") -> Container:
    """Return a copy of a list, dictionary or set as the site has it so far."""
    if not has(c, name, section):
        return empty
    found = c[section][name]
    if isinstance(found, LazyConfigValue):
        found = found.get_value(empty)
    return type(empty)(found)


def sections_with(c: Config, trait: str, cls: type) -> Iterator[str]:
    """Yield the sections that set `trait` for `cls`; the most specific one would hide the others."""
    for base in cls.mro():
        if has(c, trait, base.__name__):
            yield base.__name__
