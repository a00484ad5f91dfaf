"""The Hub's classes, with the pool's part mixed into what the site has chosen.

Owns: which spawner and which proxy a Hub with a pool has. Never: what these classes do.
"""

from __future__ import annotations

from jupyterhub.auth import DummyAuthenticator
from jupyterhub.proxy import ConfigurableHTTPProxy, Proxy
from jupyterhub.spawner import LocalProcessSpawner, Spawner
from traitlets import TraitError

from jupyter_gpupool.hub.proxy import PoolRoute
from jupyter_gpupool.spawner import GpuPoolLocalSpawner, GpuPoolMixin


def spawner_for(chosen: type[Spawner]) -> type[Spawner]:
    """Return the pool's own spawner in place of the Hub's default, else the site's with the pool mixed in."""
    if chosen is LocalProcessSpawner:
        return GpuPoolLocalSpawner
    if issubclass(chosen, GpuPoolMixin):
        return chosen
    return type(f"GpuPool{chosen.__name__}", (GpuPoolMixin, chosen), {})


def proxy_for(chosen: type[Proxy]) -> type[Proxy]:
    """Return the site's proxy with the route to a Unix socket.

    Raises
    ------
    TraitError
        It is a proxy that cannot have one.
    """
    if not issubclass(chosen, ConfigurableHTTPProxy):
        raise TraitError(
            f"{chosen.__name__} cannot reach the pool's Unix socket, as configurable-http-proxy can: "
            "serve the pool behind https, and say where with setup(c, url=...)."
        )
    if chosen is ConfigurableHTTPProxy or issubclass(chosen, PoolRoute):
        return PoolRoute
    return type(f"GpuPool{chosen.__name__}", (PoolRoute, chosen), {})


def authenticator_name(chosen: type) -> str:
    """Return the name by which the service knows an authenticator that lets anybody be anybody."""
    return DummyAuthenticator.__name__ if lets_anybody_in(chosen) else chosen.__name__


def lets_anybody_in(chosen: type) -> bool:
    """Whether with an authenticator anybody can be anybody."""
    return issubclass(chosen, DummyAuthenticator)
