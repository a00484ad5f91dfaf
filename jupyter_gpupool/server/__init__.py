"""The Jupyter Server extension: the pool's REST for the browser, behind the server's own login.

Owns: the hooks by which Jupyter Server finds and loads it. Never: the pool's service; loading starts
nothing, the first request does.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "jupyter_gpupool.server"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    from .gateway import Gateway
    from .handlers import routes

    web_app = server_app.web_app
    web_app.add_handlers(".*$", routes(web_app.settings["base_url"], Gateway()))
    server_app.log.info(
        "jupyter_gpupool: the GPU pool is at %sjupyter-gpupool/", web_app.settings["base_url"]
    )
