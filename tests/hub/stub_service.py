"""A service in the place of the pool's, for tests of `setup`: it says who asks, and what the Hub told it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

PREFIX = os.environ["JUPYTERHUB_SERVICE_PREFIX"]


class Who(HubOAuthenticated, web.RequestHandler):
    @web.authenticated
    def get(self) -> None:
        self.write(self.get_current_user())


class Told(web.RequestHandler):
    def get(self) -> None:
        told = {
            name: value for name, value in os.environ.items() if name.startswith(("GPUPOOL", "JUPYTERHUB"))
        }
        self.write({"pid": os.getpid(), **told})


class Stream(web.RequestHandler):
    """The first line is sent at once, the second when somebody asks for it."""

    more = asyncio.Event()

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.write("data: first\n\n")
        await self.flush()
        await self.more.wait()
        self.write("data: second\n\n")

    def post(self) -> None:
        self.more.set()

    def check_xsrf_cookie(self) -> None:
        """Anybody may."""


async def main() -> None:
    routes = [("who", Who), ("told", Told), ("stream", Stream), ("oauth_callback", HubOAuthCallbackHandler)]
    application = web.Application(
        [(PREFIX + path, handler) for path, handler in routes], cookie_secret=os.urandom(32)
    )
    socket = Path(os.environ["GPUPOOL_HUB_SOCKET"])
    socket.parent.mkdir(parents=True, exist_ok=True)
    server = HTTPServer(application)
    server.add_socket(bind_unix_socket(str(socket), mode=0o666))
    await asyncio.Event().wait()


asyncio.run(main())
