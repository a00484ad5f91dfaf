"""What the Hub is asked, and what follows when it does not answer, or answers otherwise than it should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.service import hub as hubs
from jupyter_gpupool.service.config import HubConfig
from jupyter_gpupool.service.hub import Hub

USERS = [{"name": f"u{number}", "servers": {"": {}, "b": {}} if number % 2 else {}} for number in range(5)]


class Users(RequestHandler):
    """The Hub's list of users, page by page, as a test wants it."""

    users: Any = USERS
    status = 200
    asked: list[str] = []  # noqa: RUF012

    async def get(self) -> None:
        self.asked.append(self.request.headers["Authorization"])
        if self.status == 0:
            await asyncio.sleep(60)
        start, count = int(self.get_argument("offset")), int(self.get_argument("limit"))
        following = {"offset": start + count} if start + count < len(self.users) else None
        self.set_status(self.status)
        self.set_header("Content-Type", "application/jupyterhub-pagination+json")
        page = {"items": self.users[start : start + count], "_pagination": {"next": following}}
        self.finish(json.dumps(page) if self.status != 299 else "no JSON")


def ask(question: Callable[[Hub], Awaitable[Any]], *, up: bool = True) -> Any:
    """Let a Hub of the test answer one question."""

    async def main() -> Any:
        (socket,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(Application([("/hub/api/users", Users)]))
        if up:
            server.add_socket(socket)
        hub = Hub(HubConfig(f"http://127.0.0.1:{socket.getsockname()[1]}/hub/api", "secret", Path("/x")))
        if not up:
            socket.close()
        try:
            return await question(hub)
        finally:
            await hub.close()
            server.stop()
            await server.close_all_connections()

    return asyncio.run(main())


def test_the_servers_of_all_users_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "PAGE", 2)
    monkeypatch.setattr(Users, "asked", [])
    assert ask(Hub.servers) == {"u1": {"", "b"}, "u3": {"", "b"}}
    assert Users.asked == ["token secret"] * 3


@pytest.mark.parametrize("status", [299, 403, 500, 0])
def test_a_hub_that_does_not_say_leaves_it_unknown(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(hubs, "PATIENCE_S", 0.3)
    monkeypatch.setattr(Users, "status", status)
    assert ask(Hub.servers) is None


def test_a_hub_that_is_down_leaves_it_unknown() -> None:
    assert ask(Hub.servers, up=False) is None


def test_without_the_scope_to_see_servers_they_are_unknown_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Users, "users", [{"name": "ada"}])
    assert ask(Hub.servers) is None


class Request:
    """As much of a request as tells which process made it."""

    def __init__(self, peer: Peer, **headers: str):
        self.request = self
        self.peer = peer
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("uid", "headers", "one_account", "own"),
    [
        (1001, {}, False, True),
        (0, {}, False, False),
        (1001, {"X_Forwarded_For": "::1"}, False, False),
        (0, {}, True, True),
        (0, {"X_Forwarded_For": "::1"}, True, False),
    ],
)
def test_a_process_is_the_users_own_only_if_its_account_is_and_no_proxy_passes_it_on(
    monkeypatch: pytest.MonkeyPatch, uid: int, headers: dict[str, str], one_account: bool, own: bool
) -> None:
    monkeypatch.setattr(hubs, "user_name", lambda uid: {0: "root", 1001: "ada"}[uid])
    found = hubs._own_process("ada", Request(Peer(7, uid), **headers), one_account=one_account)  # type: ignore[arg-type]
    assert found == (Peer(7, uid) if own else None)
