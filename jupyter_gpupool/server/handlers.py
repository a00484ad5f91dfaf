"""The pool's REST as the browser sees it: a short list of things to look at and to do.

Owns: which requests may pass, and with which permission (``read`` or ``write`` on ``gpupool``).
Never: an answer of its own; what the service says, its refusals included, is passed on in its own words.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.transport import Reply

from .gateway import Gateway, NotYours, Starting
from .live import Live

NAMESPACE = "jupyter-gpupool"
RESOURCE = "gpupool"
LOOK = r"(whoami|quota|pool|queue|leases|reservations|jobs|jobs/[0-9]{1,18}|jobs/[0-9]{1,18}/logs)"
ACT = r"(jobs/[0-9]{1,18}/(?:cancel|hold|release|requeue))"
PARAMETERS = ("state", "limit", "offset", "attempt")  # the lab's own token must never pass
PASSED_HEADERS = ("X-Gpupool-Offset", "X-Gpupool-Ended")


class PoolHandler(APIHandler):
    """What looking and acting have in common."""

    def initialize(self, gateway: Gateway, live: Live) -> None:
        """Keep the way to the service, and the stream of its events."""
        self.gateway = gateway
        self.live = live

    async def forward(self, method: str, path: str, *, may_start: bool = True) -> None:
        """Ask the service, and pass its answer on."""
        try:
            self.pass_on(await self.gateway.request(method, path, may_start=may_start))
        except PoolError as error:
            self.say(error)

    def pass_on(self, reply: Reply) -> None:
        """Answer with the service's own words; a log is text whatever it looks like."""
        self.set_status(reply.status)
        if reply.status >= 400:
            refusal = PoolError.from_reply(reply.status, reply.body)
            self.finish(json.dumps({"error": refusal.as_dict(), "startable": False}))
            return
        for name in PASSED_HEADERS:
            if name.lower() in reply.headers:
                self.set_header(name, reply.headers[name.lower()])
        is_json = reply.headers.get("content-type", "").startswith("application/json")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(
            reply.body, set_content_type="application/json" if is_json else "text/plain; charset=utf-8"
        )

    def _log(self) -> None:
        """Keep a service that is down, and asked about every few seconds, from filling the server's log."""
        if self.get_status() == 503:
            self.log.debug("503 %s: the pool's service gave no answer", self.request.path)
        else:
            super()._log()

    def say(self, error: PoolError, status: int = 503) -> None:
        """Answer that there is no service to ask, and whether the user can start it."""
        self.set_status(status)
        if isinstance(error, Starting):
            self.set_header("Retry-After", "1")
        self.finish(json.dumps({"error": error.as_dict(), "startable": self.gateway.startable}))


class LookHandler(PoolHandler):
    """Things that panels ask for again and again, which does not make their user active."""

    _track_activity = False

    @web.authenticated
    @authorized("read", resource=RESOURCE)  # type: ignore[untyped-decorator]
    async def get(self, path: str) -> None:
        """Pass on one of the things to look at; with ``start=no`` only if that starts nothing."""
        may_start = self.get_query_argument("start", "yes") != "no"
        given = {
            name: self.get_query_argument(name) for name in PARAMETERS if name in self.request.query_arguments
        }
        await self.forward("GET", f"{path}?{urlencode(given)}" if given else path, may_start=may_start)
        if self.gateway.connection is not None and self.get_status() < 400:
            self.live.begin(self.gateway.connection)


class ActHandler(PoolHandler):
    """What a user does to a job of theirs."""

    @web.authenticated
    @authorized("write", resource=RESOURCE)  # type: ignore[untyped-decorator]
    async def post(self, path: str) -> None:
        """Pass on one of the things to do."""
        await self.forward("POST", path)


class StartHandler(PoolHandler):
    """Start the service again after it was stopped, or could not start."""

    @web.authenticated
    @authorized("write", resource=RESOURCE)  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Answer 204 when the service is there."""
        try:
            await self.gateway.start()
        except NotYours as error:
            self.say(error, 403)
        except PoolError as error:
            self.say(error)
        else:
            self.set_status(204)
            self.finish()


def routes(
    base_url: str, gateway: Gateway, live: Live
) -> list[tuple[str, type[PoolHandler], dict[str, Any]]]:
    """Return the handlers under ``<base_url>jupyter-gpupool/``."""
    handlers = [(LOOK, LookHandler), (ACT, ActHandler), ("start", StartHandler)]
    return [
        (url_path_join(base_url, NAMESPACE, pattern), handler, {"gateway": gateway, "live": live})
        for pattern, handler in handlers
    ]
