"""Logging in to a pool behind a JupyterHub from anywhere.

Owns: turning a token that somebody pasted into one that expires and is good for the pool alone. Never: where
a login is kept (see `jupyter_gpupool.client.logins`), or a question to a person.
"""

from __future__ import annotations

import json
import re
import socket
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from jupyter_gpupool.client.address import HttpAddress, parse
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, Refused, ServiceDown
from jupyter_gpupool.client.logins import Login
from jupyter_gpupool.client.names import ACCESS, MANAGE, PREFIX, SUBMIT
from jupyter_gpupool.client.transport import Connection, Reply

LIFETIME = 30 * 24 * 3600  # seconds that a login lasts, if the Hub allows
OPTIONAL = (SUBMIT, MANAGE)

_PAGES = re.compile(r"/(?:hub|user|services)(?:/.*)?$")


class SignedIn(NamedTuple):
    """A new login, and whether its token is a narrower one than what was pasted."""

    login: Login
    narrowed: bool


def hub_address(typed: str) -> str:
    """Return a Hub's address from what people paste: that, one of the Hub's pages, or the pool's address.

    Raises
    ------
    Refused
        It is no web address, or a token would cross the network in the clear.
    """
    if not isinstance(parse(typed), HttpAddress):
        raise Refused(
            "invalid_url", f"{typed} is not the address of a JupyterHub.", hint="Use its https address."
        )
    parts = urlsplit(typed)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{_PAGES.sub('', parts.path).rstrip('/')}"


def sign_in(hub: str, pasted: str) -> SignedIn:
    """Exchange a token for a login.

    Parameters
    ----------
    hub
        See `hub_address`.
    pasted
        A token of the Hub's page ``/hub/token``. It is exchanged for one with the pool's scopes alone that
        lasts `LIFETIME`; where it may not make tokens, it becomes the login's token itself.

    Raises
    ------
    PoolError
        The Hub does not know the token, or its pool does not answer or does not let this user in. No new
        token is left behind.
    """
    if not re.fullmatch(r"[!-~]+", pasted):
        raise Refused("invalid_token", "This is no token.", hint=f"Make one at {hub}/hub/token.")
    session = _Session(hub, pasted)
    user = session.whoami()
    made = session.narrower(user)
    url = f"{hub}{PREFIX}"
    login = Login(
        url, hub, user["name"], made["token"] if made else pasted, made["expires_at"] if made else None
    )
    try:
        Client(Connection(url, token=login.token)).whoami()
    except PoolError:
        if made:
            session.revoke(user, made)
        raise
    return SignedIn(login, narrowed=made is not None)


class _Session:
    """The Hub's REST interface with one token."""

    def __init__(self, hub: str, token: str) -> None:
        self.hub = hub
        self._root = f"{urlsplit(hub).path}/hub/api"
        self._connection = Connection(hub, token=token)

    def whoami(self) -> dict[str, Any]:
        reply = self._ask("GET", "/user")
        if reply.status in (401, 403):
            raise Refused(
                "unauthorized",
                f"The Hub at {self.hub} does not know this token.",
                hint=f"Make one at {self.hub}/hub/token, and paste it whole.",
            )
        found = _object(reply)
        if reply.status != 200 or not isinstance(found.get("name"), str):
            raise Refused("no_hub", f"There is no JupyterHub at {self.hub} (HTTP status {reply.status}).")
        return found

    def narrower(self, user: dict[str, Any]) -> dict[str, Any] | None:
        """Make a token for the pool alone; None where the Hub does not let this token make one."""
        scopes = [ACCESS, *(scope for scope in OPTIONAL if scope in user.get("scopes", ()))]
        wish = {"note": f"jupyter gpupool login on {socket.gethostname()}", "scopes": scopes}
        reply = self._ask("POST", self._tokens(user), {**wish, "expires_in": LIFETIME})
        if reply.status == 400 and "expires_in" in str(_object(reply).get("message")):
            reply = self._ask("POST", self._tokens(user), wish)  # it has a shorter limit, and gives that
        found = _object(reply)
        return found if reply.status < 300 and "token" in found else None

    def revoke(self, user: dict[str, Any], made: dict[str, Any]) -> None:
        self._ask("DELETE", f"{self._tokens(user)}/{made['id']}")

    def _tokens(self, user: dict[str, Any]) -> str:
        return f"/users/{quote(user['name'], safe='')}/tokens"

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Reply:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            reply = self._connection.request(method, self._root + path, content, headers)
        except ServiceDown as error:
            raise ServiceDown(f"The Hub at {self.hub} does not answer.", hint="Check the address.") from error
        if reply.status >= 500:
            raise ServiceDown(f"The Hub at {self.hub} does not answer (HTTP status {reply.status}).")
        return reply


def _object(reply: Reply) -> dict[str, Any]:
    try:
        found = json.loads(reply.body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
