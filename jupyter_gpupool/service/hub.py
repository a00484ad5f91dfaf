"""The JupyterHub that a service belongs to.

Owns: who a Hub's token or login cookie stands for, sending browsers to the Hub's login and back, and which
servers the Hub knows. Never: what an identity may do (see `scopes`), or a user's token kept longer than
`KNOWN_FOR_S`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

import aiohttp
from jupyterhub.httpclient import JupyterHubHTTPClient, fetch
from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from tornado.web import Application, HTTPError

from jupyter_gpupool.client.names import ACCESS
from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.service.application import Endpoint, application
from jupyter_gpupool.service.config import HubConfig
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import ApiError, forbidden
from jupyter_gpupool.service.identity import Identity, credential, user_name
from jupyter_gpupool.service.replying import Replying
from jupyter_gpupool.service.scopes import scopes_of

log = logging.getLogger("gpupool")

KNOWN_FOR_S = 5
"""How long the Hub's answer on a token holds: so late is a change of groups seen, or a token's end."""
PATIENCE_S = 10.0
"""How long the Hub may take to say who somebody is."""
PAGE = 200
"""How many users are asked for at once."""
FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ValueError, HTTPError)
"""What asking the Hub can end in when it is down, or is no Hub."""


class Hub:
    """One Hub, as its service sees it."""

    def __init__(self, config: HubConfig):
        self._config = config
        self._auth = HubOAuth(
            api_url=config.api_url,
            api_token=config.api_token,
            base_url=config.prefix,
            hub_prefix=f"{config.base_url}hub/",
            oauth_client_id=config.client_id,
            oauth_redirect_uri=config.callback,
            access_scopes={ACCESS},
            allow_token_in_url=False,
            cache_max_age=KNOWN_FOR_S,
        )

    def application(self, service: Service) -> Application:
        """Build what answers `service`'s requests on the Hub's side."""
        auth = self._auth

        class AtHub(_AtHub):
            _hub_auth = auth

        class Callback(AtHub, _Callback):
            pass

        return application(
            service,
            self.identify,
            prefix=self._config.prefix,
            mixin=AtHub,
            more=[(f"{self._config.prefix}oauth_callback", Callback)],
            cookie_secret=secrets.token_bytes(32),
            login_url=auth.login_url,
        )

    async def identify(self, request: Endpoint) -> Identity:
        """Ask the Hub whose token, or login cookie, a request carries.

        Raises
        ------
        ApiError
            401: nobody's; 403: a cookie without the proof that the page is the user's own; 503: the Hub does
            not answer.
        """
        request.__dict__.pop("_cached_hub_user", None)  # a stream asks more than once
        try:
            async with asyncio.timeout(PATIENCE_S):
                user = await self._auth.get_user(request, sync=False)
        except FAILURES as error:
            log.warning("The Hub at %s cannot say who asks: %s", self._config.api_url, error)
            raise self._unreachable() from error
        if user is None:
            raise self._unknown(request)
        return self._identity(user, request)

    async def servers(self) -> dict[str, set[str]] | None:
        """Return the names of each user's servers that run or are starting; None if the Hub does not say."""
        try:
            users = await self._users()
            return {user["name"]: set(user["servers"]) for user in users if user["servers"]}
        except KeyError:
            log.warning("The Hub does not tell this service of servers: it lacks the scope read:servers.")
        except FAILURES as error:
            log.warning("The Hub at %s cannot say which servers run: %s", self._config.api_url, error)
        return None

    async def close(self) -> None:
        """Let go of the connections to the Hub."""
        await JupyterHubHTTPClient.loop_instance().close()

    async def _users(self) -> list[dict[str, Any]]:
        headers = {
            "Authorization": f"token {self._config.api_token}",
            "Accept": "application/jupyterhub-pagination+json",
        }
        users: list[dict[str, Any]] = []
        while True:
            url = f"{self._config.api_url}/users?limit={PAGE}&offset={len(users)}"
            async with asyncio.timeout(PATIENCE_S):
                page = await (await fetch(url, headers=headers)).json()
            users += page["items"]
            if not page["_pagination"]["next"]:
                return users

    def _identity(self, user: dict[str, Any], request: Endpoint) -> Identity:
        scopes = scopes_of(user["scopes"])
        if user["kind"] != "user":
            return Identity(f"service:{user['name']}", scopes, hub_groups=())
        peer = _own_process(user["name"], request, one_account=self._config.demo)
        uid, pid = (peer.uid, peer.pid) if peer else (None, None)
        return Identity(user["name"], scopes, uid, pid, tuple(user["groups"]))

    def _unknown(self, request: Endpoint) -> ApiError:
        """Say why nobody was identified."""
        if credential(request.request.headers.get("Authorization")):
            return ApiError(
                401,
                "unknown_token",
                f"The Hub at {self._config.api_url} does not know this token: it is void, or another Hub's.",
            )
        if request.get_signed_cookie(self._auth.cookie_name):
            try:
                request.check_xsrf_cookie()
            except HTTPError:
                return forbidden("A request by a browser must send the _xsrf cookie as X-Xsrftoken as well.")
        return ApiError(
            401,
            "not_logged_in",
            "This takes a token of the Hub, or a login there.",
            hint="Log in to the Hub.",
        )

    def _unreachable(self) -> ApiError:
        return ApiError(
            503,
            "hub_unreachable",
            f"The Hub at {self._config.api_url} does not answer, so nobody can be told from anybody.",
            hint="Jobs go on; try again when the Hub is back.",
        )


class _AtHub(HubOAuthenticated):  # type: ignore[misc]
    """An address that browsers reach through the Hub's proxy."""

    def get_current_user(self) -> dict[str, Any] | None:
        """Return whom the Hub named for this request, without asking again."""
        found: dict[str, Any] | None = getattr(self, "_cached_hub_user", None)
        return found

    def refuse(self, error: ApiError) -> None:
        """Send people to the login; tell programs that they lack it."""
        if error.code == "not_logged_in" and self.routes and _is_visit(self):
            self.redirect(self.get_login_url())
        else:
            super().refuse(error)


class _Callback(HubOAuthCallbackHandler, Replying):  # type: ignore[misc]
    """Where the Hub sends browsers back to after the login."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say in one sentence why the login did not work."""
        error = kwargs["exc_info"][1]
        if isinstance(error, HTTPError) and status_code < 500:
            self.refuse(ApiError(status_code, "login_failed", f"{error.log_message}"))
        else:
            log.error("A login was not completed", exc_info=error)
            hint = "Try again in a moment."
            self.refuse(ApiError(503, "hub_unreachable", "The Hub did not confirm the login.", hint=hint))


def _is_visit(request: Endpoint) -> bool:
    """Whether somebody opens a page, as against a program's request."""
    headers = request.request.headers
    mode = headers.get("Sec-Fetch-Mode")
    return request.request.method == "GET" and (
        mode == "navigate" or (mode is None and "text/html" in headers.get("Accept", ""))
    )


def _own_process(user: str, request: Endpoint, *, one_account: bool) -> Peer | None:
    """Return the process that asks if it is the user's own, and not the proxy for it."""
    if "X-Forwarded-For" in request.request.headers:
        return None
    peer = request.peer
    return peer if one_account or user_name(peer.uid) == user else None
