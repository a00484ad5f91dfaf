"""The Hub's way to the pool's service.

Owns: requests for servers' leases over the service's Unix socket (or https), the check of who serves it
before the token is sent, and one sentence for each way in which that can fail. Never: when to ask.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from jupyter_gpupool._version import __version__, goes_with
from jupyter_gpupool.client.address import HttpAddress, UnixAddress, parse
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.peers import check_peer, check_way, trusted
from jupyter_gpupool.spawner.answers import Spawn, Unusable, read_spawn

Json = dict[str, Any]

ANSWER_S = 10.0
PAUSES = (0.1, 0.3, 0.6, 1.0, 2.0)
"""Seconds between tries: a service that restarts is back within them."""
PASSING = ("not_open", "stopping")
"""What a service says of itself that may have passed a moment later."""


class Pool:
    """The service, as the Hub's spawners see it. Every request may be repeated.

    Parameters
    ----------
    url : str
        ``unix:/path/hub.sock?uid=N`` or ``https://host/services/gpupool``.
    token : str
        The token of the Hub's service ``gpupool-spawner``.
    pauses : tuple of float, optional
        Seconds between tries when nothing answers; `PAUSES` by default.
    """

    def __init__(self, url: str, token: str, *, pauses: tuple[float, ...] | None = None) -> None:
        self._url = url
        self._token = token
        self._pauses = PAUSES if pauses is None else pauses

    async def request_lease(self, body: Json) -> Spawn:
        """Ask for the lease of a server.

        Raises
        ------
        PoolError
            Refused, with the numbers, or the service cannot be used.
        """
        return read_spawn(await self._ask("POST", "spawns", body={**body, "version": __version__}))

    async def look(self, lease: int, *, wait: int = 0) -> Spawn:
        """Return how a lease stands, after a change or `wait` seconds.

        Raises
        ------
        PoolError
            As `request_lease`; ``not_found`` when it is over and forgotten.
        """
        query = {"wait": str(wait)}
        return read_spawn(await self._ask("GET", f"spawns/{lease}", query=query, seconds=wait + ANSWER_S))

    async def give_back(self, lease: int) -> None:
        """End a lease, or withdraw a request that waits; one that is over is no error.

        Raises
        ------
        PoolError
            As `request_lease`.
        """
        try:
            await self._ask("DELETE", f"spawns/{lease}", pauses=())
        except PoolError as error:
            if error.code not in ("not_found", "conflict"):
                raise

    async def choices(self, user: str, groups: list[str]) -> Json:
        """Return the `ChoicesReply` of a user.

        Raises
        ------
        PoolError
            As `request_lease`.
        """
        query = {"user": user, "groups": ",".join(groups)}
        return await self._ask("GET", "spawns/choices", query=query, pauses=PAUSES[:2])

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        seconds: float = ANSWER_S,
        pauses: tuple[float, ...] | None = None,
    ) -> Json:
        """Send one request, again after each pause while nobody serves it; return the answer's JSON."""
        for pause in (*(self._pauses if pauses is None else pauses), None):
            try:
                status, version, answer = await self._exchange(method, path, body, query, seconds)
                return _read(status, version, answer)
            except (OSError, aiohttp.ClientError, TimeoutError) as error:
                if pause is None:
                    raise self._down(error) from None
            except Unusable as error:
                if pause is None or error.code not in PASSING:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _exchange(
        self,
        method: str,
        path: str,
        body: Json | None,
        query: Mapping[str, str] | None,
        seconds: float,
    ) -> tuple[int, str | None, bytes]:
        address = parse(self._url)
        async with (
            aiohttp.ClientSession(
                connector=_connector(address), timeout=aiohttp.ClientTimeout(total=seconds)
            ) as session,
            session.request(
                method,
                f"{_origin(address)}{address.base}/api/v1/{path}",
                params=query,
                data=None if body is None else json.dumps(body),
                headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
                allow_redirects=False,
            ) as reply,
        ):
            return reply.status, reply.headers.get("X-Gpupool-Version"), await reply.read()

    def _down(self, error: Exception) -> Unusable:
        because = (error.strerror if isinstance(error, OSError) else None) or str(error)
        because = because or "it gave no answer in time"
        return Unusable(
            "service_down",
            f"The GPU pool's service does not answer ({because}), so no server can be started now.",
            hint="Try again in a minute; if it lasts, tell your administrator.",
        )


class _ProvenConnector(aiohttp.UnixConnector):
    """Connections over a Unix socket that no stranger serves: checked before a request is written."""

    def __init__(self, address: UnixAddress) -> None:
        super().__init__(path=address.path, force_close=True)
        self._uids = trusted(address.owner)

    async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
        """Connect, then ask the kernel who listens."""
        check_way(self.path, self._uids)
        connection = await super().connect(*args, **kwargs)
        try:
            assert connection.transport is not None
            check_peer(connection.transport.get_extra_info("socket"), self.path, self._uids)
        except BaseException:
            connection.close()
            raise
        return connection


def _connector(address: UnixAddress | HttpAddress) -> aiohttp.BaseConnector:
    if isinstance(address, UnixAddress):
        return _ProvenConnector(address)
    return aiohttp.TCPConnector(force_close=True)


def _origin(address: UnixAddress | HttpAddress) -> str:
    if isinstance(address, UnixAddress):
        return "http://localhost"
    host = f"[{address.host}]" if ":" in address.host else address.host
    scheme = "https" if address.secure else "http"
    return f"{scheme}://{host}" + (f":{address.port}" if address.port else "")


def _read(status: int, version: str | None, body: bytes) -> Json:
    """Return an answer's JSON, or raise what it says.

    Raises
    ------
    PoolError
        The service refuses, is of another version, or does not know this Hub.
    """
    if version is not None and not goes_with(version):
        raise Unusable(
            "other_version",
            f"The GPU pool's service is version {version} and this Hub has {__version__}, so no server "
            "can be started now.",
            hint="Tell your administrator: both need the same version, and a restart after an upgrade.",
        )
    if status in (401, 403):
        raise Unusable(
            "not_this_hub",
            "The GPU pool's service does not accept this Hub's spawner: it belongs to another Hub, or its "
            "token has changed.",
            hint="Tell your administrator: restart the service and the Hub.",
        )
    if status >= 400:
        kind = Unusable if status >= 500 else PoolError
        raise kind.from_reply(status, body)
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unusable("unexpected_reply", f"The GPU pool's service answered {status} with no JSON object.")
    return answer
