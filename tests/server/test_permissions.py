from __future__ import annotations

import pytest
from jupyter_server.auth import Authorizer

REQUESTS = [
    ("quota", "GET", "read"),
    ("jobs/17/logs", "GET", "read"),
    ("jobs/17/cancel", "POST", "write"),
    ("start", "POST", "write"),
]


class Recording(Authorizer):
    """Allows what is listed and remembers what it was asked."""

    def __init__(self):
        super().__init__()
        self.allowed: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, str]] = []

    def is_authorized(self, handler, user, action, resource):
        self.asked.append((action, resource))
        return (action, resource) in self.allowed


@pytest.fixture
def authorizer(jp_web_app, monkeypatch, service):
    recording = Recording()
    monkeypatch.setitem(jp_web_app.settings, "authorizer", recording)
    return recording


@pytest.mark.parametrize(("path", "method", "action"), REQUESTS)
async def test_without_a_login_nothing_is_shown_or_done(ask, service, path, method, action):
    answer = await ask(path, method, headers={"Authorization": ""})
    assert answer.code == 403
    assert service.calls == []


@pytest.mark.parametrize(("path", "method", "action"), REQUESTS)
async def test_a_denial_of_the_authorizer_holds(ask, authorizer, service, path, method, action):
    answer = await ask(path, method)
    assert answer.code == 403
    assert authorizer.asked == [(action, "gpupool")]
    assert service.calls == []


async def test_permission_to_look_is_none_to_act(ask, authorizer, service):
    authorizer.allowed = {("read", "gpupool")}
    service.says("GET quota", {})
    assert (await ask("quota")).code == 200
    assert (await ask("jobs/17/cancel", "POST")).code == 403
