"""The way from the Hub's proxy to the pool's service: a Unix socket that no other user can take.

Owns: `PoolRoute`, configurable-http-proxy with one route more. Never: what the service answers.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from jupyterhub.proxy import ConfigurableHTTPProxy
from traitlets import Bunch, Unicode, validate

from jupyter_gpupool.client.names import PREFIX, SERVICE


class PoolRoute(ConfigurableHTTPProxy):  # type: ignore[misc]
    """The Hub's usual proxy, which also routes to the pool's Unix socket."""

    pool_socket = Unicode(help="The Unix socket of the pool's service.").tag(config=True)
    pool_routespec = Unicode(help="The route to it, such as `/services/gpupool/`.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._check_setup()
        self.set_trait("extra_routes", {**self.extra_routes, **self.pool_route})

    @property
    def pool_route(self) -> dict[str, str]:
        """The route as the proxy takes it; the Hub would accept no other target than a host."""
        return {self.pool_routespec: f"http+unix://{quote(self.pool_socket, safe='')}"}

    async def restore_routes(self) -> None:
        """Fill a proxy that was started anew; the Hub itself would add the extra routes minutes later."""
        await super().restore_routes()
        for spec, target in self.extra_routes.items():
            await self.add_route(spec, target, {"extra": True})

    @validate("extra_routes")
    def _validate_extra_routes(self, proposal: Bunch) -> dict[str, str]:
        ours = dict(proposal.value.items() & self.pool_route.items())
        others = {spec: target for spec, target in proposal.value.items() if spec not in ours}
        return {**super()._validate_extra_routes(Bunch(proposal, value=others)), **ours}

    def _check_setup(self) -> None:
        """End the Hub with a sentence if its configuration was changed under the pool after `setup`."""
        if not any(spec.get("name") == SERVICE for spec in self.app.services):
            self._refuse("c.JupyterHub.services was replaced")
        if not self.pool_routespec.endswith(f"{self.app.base_url.rstrip('/')}{PREFIX}/"):
            self._refuse(f"The Hub's base_url became {self.app.base_url}")

    def _refuse(self, change: str) -> None:
        self.log.critical("%s after jupyter_gpupool.hub.setup(c): call setup last.", change)
        self.app.exit(1)
