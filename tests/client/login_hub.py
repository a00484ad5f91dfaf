"""The configuration of a small JupyterHub with a pool's name, scopes and a service that answers ``whoami``.

Ports come by ``PORTS`` (public, Hub, proxy's API, service); Hub and service run this one file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PUBLIC, HUB, PROXY, SERVICE = map(int, os.environ.get("PORTS", "0,0,0,0").split(","))


def configure(c: Any) -> None:
    """Fill in the Hub's configuration."""
    c.JupyterHub.bind_url = f"http://127.0.0.1:{PUBLIC}/base/"
    c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{HUB}"
    c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{PROXY}"
    c.JupyterHub.authenticator_class = "dummy"
    c.Authenticator.allowed_users = {"ada", "bob", "eve smith"}
    c.JupyterHub.token_expires_in_max_seconds = int(os.environ["MAX_SECONDS"])
    c.JupyterHub.custom_scopes = {"custom:gpupool:submit": {"description": "Submit jobs to the GPU pool"}}
    c.JupyterHub.load_roles = [
        {
            "name": "pool",
            "users": ["ada", "bob"],
            "scopes": ["access:services!service=gpupool", "custom:gpupool:submit"],
        }
    ]
    c.JupyterHub.services = [
        {
            "name": "gpupool",
            "url": f"http://127.0.0.1:{SERVICE}",
            "command": [sys.executable, str(Path(__file__))],
            "environment": {"PORTS": os.environ["PORTS"]},
        }
    ]


def serve() -> None:
    """Answer who asks, to those whom the Hub lets in; fail for bob."""
    from jupyterhub.services.auth import HubAuth
    from tornado import ioloop, web

    auth = HubAuth(cache_max_age=0)

    class Whoami(web.RequestHandler):
        def get(self) -> None:
            token = self.request.headers["Authorization"].removeprefix("token ")
            user = auth.user_for_token(token, use_cache=False)
            if not user or not auth.check_scopes(auth.access_scopes, user):
                self.set_status(403)
                self.finish(json.dumps({"error": {"code": "forbidden", "message": "Not in this pool."}}))
                return
            if user["name"] == "bob":
                self.set_status(503)
                self.finish(json.dumps({"error": {"code": "unavailable", "message": "Not for bob today."}}))
                return
            self.finish({"user": user["name"], "scopes": user["scopes"], "version": "0"})

    application = web.Application([(r"/base/services/gpupool/api/v1/whoami", Whoami)])
    application.listen(SERVICE, "127.0.0.1")
    ioloop.IOLoop.current().start()


if __name__ == "__main__":
    serve()
elif "get_config" in globals():
    configure(get_config())  # type: ignore[name-defined]  # noqa: F821
