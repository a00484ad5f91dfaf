"""The Jupyter Server extension: the pool's REST for the browser, behind the server's own login.

Owns: the hooks by which Jupyter Server finds and loads it, and its part of the server's event bus. Never: the
pool's service; loading starts nothing, the first request does; a service that runs hears what the kernels
here do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "jupyter_gpupool.server"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    from tornado.ioloop import IOLoop, PeriodicCallback

    from . import activity
    from .gateway import Gateway
    from .handlers import routes
    from .live import SCHEMA, SCHEMA_ID, Live

    web_app, bus, gateway = server_app.web_app, server_app.event_logger, Gateway()
    loop: Any = IOLoop.current()

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        said = {"kind": kind, "data": data}
        loop.asyncio_loop.call_soon_threadsafe(partial(bus.emit, schema_id=SCHEMA_ID, data=said))

    bus.register_event_schema(SCHEMA)
    live = Live(gateway.has_ended, emit)
    web_app.add_handlers(".*$", routes(web_app.settings["base_url"], gateway, live))
    say = partial(activity.say, server_app.kernel_manager)
    PeriodicCallback(say, 1000 * activity.EVERY_S).start()
    server_app.log.info(
        "jupyter_gpupool: the GPU pool is at %sjupyter-gpupool/", web_app.settings["base_url"]
    )
