"""How every address of a service sends what it has to say.

Owns: the headers of all replies, and the one way out for results and refusals. Never: what is said.
"""

from __future__ import annotations

from tornado.web import RequestHandler

from jupyter_gpupool._version import __version__
from jupyter_gpupool.service.call import Bytes, as_json
from jupyter_gpupool.service.errors import ApiError


class Replying(RequestHandler):
    """An address that answers in the one shape."""

    def set_default_headers(self) -> None:
        """Say with every reply which version gave it."""
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Gpupool-Version", __version__)

    def send(self, reply: Bytes) -> None:
        """Send a reply as it is."""
        for name, value in reply.headers.items():
            self.set_header(name, value)
        self.set_header("Content-Type", reply.content_type)
        self.finish(reply.data)

    def refuse(self, error: ApiError) -> None:
        """Say what went wrong."""
        self.set_status(error.status)
        self.send(as_json(error.reply()))
