"""From HTTP to handlers and back.

Owns: identifying and authorising every request, reading it, and turning what a handler returns or raises
into a reply of the one shape. Never: the meaning of a request.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any

from tornado.iostream import StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from jupyter_gpupool.client.names import PREFIX
from jupyter_gpupool.client.peercred import Peer, peer_of
from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.ledger import IllegalTransition, LedgerUnavailable, UnknownId
from jupyter_gpupool.policy.problems import PolicyError
from jupyter_gpupool.service import wire
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Bytes, Call, as_json
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import ApiError, conflict, forbidden, invalid, nearest
from jupyter_gpupool.service.events import HEARTBEAT_S
from jupyter_gpupool.service.identity import NOBODY, Identity, credential, job_identity
from jupyter_gpupool.service.naming import capital
from jupyter_gpupool.service.openapi import document
from jupyter_gpupool.service.replying import Replying
from jupyter_gpupool.service.routes import ROUTES, Parameter, Route
from jupyter_gpupool.service.scopes import permits, what_it_takes
from jupyter_gpupool.service.snapshots import MIB, Upload
from jupyter_gpupool.service.visibility import sees_names

log = logging.getLogger("gpupool")

XSRF = "_xsrf"
"""The parameter with which a browser's stream proves that the page is the user's own; see `hub`."""

Routes = Mapping[str, Route]
ENDING = ApiError(503, "stopping", "The pool's service is ending.", hint="Try again in a moment.")


IdentifyRequest = Callable[["Endpoint"], Awaitable[Identity]]
"""How a listener finds out who asks; raises ApiError."""


@cache
def describe() -> dict[str, Any]:
    """Return the OpenAPI document, made when somebody asks for it first."""
    return document(ROUTES)


def application(
    service: Service,
    identify: IdentifyRequest,
    *,
    prefix: str = f"{PREFIX}/",
    mixin: type | None = None,
    more: Sequence[tuple[Any, ...]] = (),
    **settings: Any,
) -> Application:
    """Build the application of one listener from the table of routes.

    Parameters
    ----------
    prefix
        Under which address a proxy passes requests on; the usual one is always answered as well.
    mixin
        What this listener's handlers are besides.
    more, settings
        More handlers, and the application's settings.
    """
    service.describe = describe
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    parts = {"service": service, "identify": identify}
    roots = dict.fromkeys((PREFIX, prefix.rstrip("/")))
    handlers = [
        (pattern(root + path.removeprefix(PREFIX)), _endpoint(routes, mixin), {**parts, "routes": routes})
        for root in roots
        for path, routes in by_path.items()
    ]
    return Application(
        [*handlers, *more],
        default_handler_class=_endpoint({}, mixin),
        default_handler_args={**parts, "routes": {}},
        log_function=_log_failures,
        **settings,
    )


async def by_peer(request: Endpoint) -> Identity:
    """Find out from the kernel who is at the other end of the socket."""
    return request.service.identify(request.peer)


def authorise(who: Identity, route: Route, path: Mapping[str, str]) -> None:
    """Refuse what this identity may not do.

    Raises
    ------
    ApiError
        With what is missing.
    """
    if route.by_anybody:
        return
    if who.job is not None and route.by_job:
        if path.get("id", str(who.job)) != str(who.job):
            raise forbidden(f"This is the token of job {who.job}; of other jobs it learns nothing.")
        return
    if who.job is not None:
        raise forbidden(f"This is the token of job {who.job}; with it a job only reports on itself.")
    if not permits(who.scopes, route.action):
        what = f"{route.action} the {route.resource}"
        raise forbidden(f"{who.user} may not do this here ({what}): it takes {what_it_takes(route.action)}.")


class Endpoint(Replying):
    """One address of the service."""

    def initialize(self, service: Service, identify: IdentifyRequest, routes: Routes) -> None:
        """Take what the application was built from."""
        self.service = service
        self.identify = identify
        self.routes = routes
        self.who: Identity | None = None
        self.problem: ApiError | None = None

    async def prepare(self) -> None:
        """Find out who asks, and whether they may, before anything of the request is used.

        A refusal is sent when the request has been read: only then does a client look for the reply.
        """
        try:
            self.who = await self._identify()
            if self.service.stopping.is_set():
                raise ENDING
            if not self.routes:
                raise ApiError(404, "not_found", f"There is nothing at {self.request.path}.")
            authorise(self.who, self.route, self.path_kwargs)
        except ApiError as error:
            self.problem = error

    async def _identify(self) -> Identity:
        token = credential(self.request.headers.get("Authorization"))
        try:
            job = job_identity(token, self.service.tokens, self.service.ledger.jobs)
            return job or await self.identify(self)
        except ApiError:
            if self.routes and self.route.by_anybody:
                return NOBODY
            raise

    @property
    def peer(self) -> Peer:
        """The process at the other end of the socket.

        Raises
        ------
        StreamClosedError
            It has hung up.
        """
        stream = self.request.connection.stream  # type: ignore[union-attr]
        if stream.closed():
            raise StreamClosedError
        return peer_of(stream.socket)

    @property
    def route(self) -> Route:
        """The route of this request's method."""
        found = self.routes.get(self.request.method or "")
        if found is None:
            known = ", ".join(self.routes)
            raise ApiError(
                405, "wrong_method", f"{self.request.path} takes {known}, not {self.request.method}."
            )
        return found

    async def get(self, **path: str) -> None:
        """Answer."""
        await self.answer(path)

    head = post = put = delete = patch = options = get

    async def answer(self, path: dict[str, str]) -> None:
        """Let the route's handler answer, whatever comes of it."""
        try:
            if self.problem:
                raise self.problem
            await self.respond(self.call(path))
        except Exception as error:
            known = ENDING if self.service.stopping.is_set() else as_api_error(error)
            if known is None:
                raise
            self.refuse(known)

    async def respond(self, call: Call[Any]) -> None:
        """Let the route's handler answer."""
        route = self.route
        found = await route.handle(call)
        if isinstance(found, tuple):
            status, found = found
        else:
            status = route.status
        self.set_status(status)
        if found is None:
            self.finish()
        else:
            self.send(found if isinstance(found, Bytes) else as_json(found))

    def call(self, path: dict[str, str]) -> Call[Any]:
        """Read the request."""
        assert self.who is not None
        route = self.route
        query = _query(route, {name: values[-1] for name, values in self.request.query_arguments.items()})
        body = wire.read(route.body, self.request.body) if route.body else None
        return Call(self.service, self.who, path, query, self.request.headers, body)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say in the one shape what no handler has said."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, HTTPError) and status_code < 500:
            self.refuse(
                ApiError(status_code, "bad_request", f"The request cannot be read: {error.reason or error}.")
            )
            return
        log.error("%s %s failed", self.request.method, self.request.path, exc_info=error)
        sentence = "The service failed at this request; the cause is in its service.log."
        self.refuse(ApiError(500, "internal", sentence, hint="Tell the administrator."))


class EventStream(Endpoint):
    """Server-sent events."""

    async def respond(self, call: Call[Any]) -> None:
        """Send what happens until the client hangs up or the service stops."""
        bus, who = self.service.bus, call.who
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-store")
        last = _last_event(self.request.headers.get("Last-Event-ID"), bus.last)
        bus.listeners += 1
        try:
            self.write(b": hello\n\n")
            await self.flush()
            while not bus.closed and await self._is_welcome():
                events = bus.after(last, who.user, names=sees_names(self.service.policy, who))
                last = bus.last
                self.write(b"".join(event.encoded() for event in events) if events else b": alive\n\n")
                await self.flush()
                await bus.news(last, HEARTBEAT_S)
        except StreamClosedError:
            pass
        finally:
            bus.listeners -= 1

    async def _is_welcome(self) -> bool:
        """Whether who listens still may; a Hub that is down sends nobody away."""
        try:
            authorise(await self._identify(), self.route, self.path_kwargs)
        except ApiError as error:
            return error.status == 503
        return True


@stream_request_body
class UploadEndpoint(Endpoint):
    """An address that takes large bodies piece by piece."""

    upload: Upload | None = None

    async def prepare(self) -> None:
        """Make ready for the body."""
        await super().prepare()
        if self.problem or self.request.method != "PUT":
            return
        assert self.who is not None
        self.request.connection.set_max_body_size(2 * self.service.snapshots.cap_mib * MIB)  # type: ignore[union-attr]
        digest = self.path_kwargs["sha256"]
        try:
            self.upload = self.service.snapshots.receive(self.who.user, digest)
        except ApiError as error:
            self.problem = error

    def data_received(self, chunk: bytes) -> None:
        """Take a piece; after a problem, drop it."""
        if self.upload is None or self.problem:
            return
        try:
            self.upload.write(chunk)
        except ApiError as error:
            self.problem = error
            self.upload.abandon()

    async def respond(self, call: Call[Any]) -> None:
        """Keep what was received, if it is what it should be; leave nothing else behind."""
        if self.upload is not None:
            try:
                await aside(self.upload.finish)
            finally:
                self.upload.abandon()
        await super().respond(call)

    def on_connection_close(self) -> None:
        """Leave nothing half received."""
        if self.upload:
            self.upload.abandon()


def as_api_error(error: BaseException) -> ApiError | None:
    """Return what to tell the user about an exception; None when it is the service's own fault."""
    match error:
        case ApiError():
            return error
        case LedgerUnavailable():
            code = "disk_full" if "is full" in str(error) else "storage_unavailable"
            return ApiError(507, code, str(error))
        case IllegalTransition():
            return conflict(capital(str(error)))
        case UnknownId():
            return ApiError(404, "not_found", str(error))
        case EngineError():
            return ApiError(503, "engine_unavailable", str(error), hint="Try again in a moment.")
        case PolicyError():
            return ApiError(422, "policy_invalid", str(error), hint="Nothing was changed.")
    return None


def _endpoint(routes: Routes, mixin: type | None) -> type[Endpoint]:
    streams = {route.stream for route in routes.values()}
    found = EventStream if "events" in streams else UploadEndpoint if "upload" in streams else Endpoint
    return type(found.__name__, (mixin, found), {}) if mixin else found


def pattern(path: str) -> str:
    """Return the expression that matches the addresses of a path such as ``jobs/{id}``."""
    return re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path))


def _query(route: Route, given: Mapping[str, bytes]) -> dict[str, Any]:
    """Check the query's parameters against the route's."""
    known = {parameter.name: parameter for parameter in route.query}
    for name in given:
        if name not in known and name != XSRF:
            guess = nearest(name, known)
            hint = f"Did you mean {guess}?" if guess else "Leave it out."
            raise invalid(f"Unknown parameter {name}.", hint, code="unknown_option")
    return {
        name: _value(parameter, given[name].decode("utf-8", "replace"))
        if name in given
        else parameter.default
        for name, parameter in known.items()
    }


def _value(parameter: Parameter, text: str) -> Any:
    if parameter.type is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise invalid(f"{parameter.name} is {text!r}; it can be true or false.")
        return text.lower() in ("true", "1")
    if parameter.type is str:
        return text
    if not re.fullmatch(r"-?\d{1,19}", text):
        raise invalid(f"{parameter.name} is {text!r}; it must be a whole number.")
    least, most = parameter.least or 0, parameter.most or 2**62
    if not least <= int(text) <= most:
        raise invalid(f"{parameter.name} is {text}; it can be {least} to {most}.")
    return int(text)


def _last_event(text: str | None, newest: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 19 else newest


def _log_failures(handler: RequestHandler) -> None:
    if handler.get_status() >= 500:
        took = 1000 * handler.request.request_time()
        log.warning(
            "%s %s: %d in %.0f ms", handler.request.method, handler.request.path, handler.get_status(), took
        )
