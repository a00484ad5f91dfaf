"""Who may do what: every address has its rule, and the rule is asked first."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.peercred import Peer
from jupyter_gpupool.service.application import authorise
from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.identity import Identity, identify
from jupyter_gpupool.service.routes import ROUTES, Route
from jupyter_gpupool.service.scopes import ADMINISTRATOR, NEEDED, permits, what_it_takes

USER = frozenset(("read", "submit"))
ADA = Identity("ada", USER)


class Someone:
    """Says who the next request comes from."""

    def __init__(self) -> None:
        self.user, self.uid, self.admin = "ada", None, False

    def __call__(self, peer: Peer) -> Identity:
        if self.uid is not None:
            return identify(Peer(peer.pid, self.uid))
        return Identity(self.user, ADMINISTRATOR if self.admin else USER, peer.uid, peer.pid)


@pytest.fixture
def someone() -> Someone:
    return Someone()


def addresses() -> list[Any]:
    return [pytest.param(route, id=route.name) for route in ROUTES]


@pytest.mark.parametrize("route", addresses())
def test_every_route_says_who_may_do_what(route: Route) -> None:
    assert route.action in NEEDED
    if route.method in ("POST", "PUT", "DELETE"):
        assert route.action != "read"
    if route.by_anybody or permits(USER, route.action):
        authorise(ADA, route, {"id": "1"})
    else:
        with pytest.raises(ApiError) as caught:
            authorise(ADA, route, {"id": "1"})
        assert caught.value.status == 403
        assert what_it_takes(route.action) in caught.value.message


def test_another_account_is_refused_everywhere(start: Any, someone: Someone) -> None:
    call = start(parts={"identify": someone})
    someone.uid = 54321
    for route in ROUTES:
        path = route.path.format(id=1, name="x", sha256="0" * 64)
        answer = call(route.method, path, b"{}" if route.body else None)
        if route.by_anybody:
            assert answer.body == {"status": "ok", "version": __version__}
            continue
        assert answer.status == 403, route
        if route.method != "HEAD":
            assert answer.error["code"] == "forbidden"
    someone.uid, someone.admin = None, True


def test_what_others_have_is_seen_only_as_far_as_the_queue_shows_it(start: Any, someone: Someone) -> None:
    call = start("1x1x8GiB", parts={"identify": someone})
    digest = call.upload({"a.py": "pass"})
    job = call.submit("echo secret; sleep 100", name="adas")
    call.log(job["id"], wait=10)
    lease = call("POST", "leases", {"gpu_memory": "1GiB"}).body
    someone.user = "bob"
    assert call("HEAD", f"snapshots/{digest}").status == 404
    for path in ("logs", "artifacts", "artifacts/x"):
        assert call("GET", f"jobs/{job['id']}/{path}").status == 404
    for path in (f"leases/{lease['id']}",):
        assert call("GET", path).status == 404
        assert call("DELETE", path).status == 404
    for verb in ("cancel", "hold", "release", "requeue"):
        assert call("POST", f"jobs/{job['id']}/{verb}").status == 403
    seen = call.job(job["id"])
    assert (seen["user"], seen["name"], seen["state"]) == ("ada", "adas", "running")
    private = ("folder", "out", "log", "workdir", "progress", "diagnosis")
    assert [seen[name] for name in private] == [None] * len(private)
    assert call("GET", "jobs").body["jobs"] == []
    assert call("GET", "leases").body["leases"] == []
    submitted = call("POST", "jobs", call.command("true", snapshot=digest))
    assert submitted.error["code"] == "snapshot_missing"
    someone.admin = True
    assert call("POST", f"jobs/{job['id']}/cancel").status == 200
    someone.user, someone.admin = "ada", True


def test_only_an_administrator_changes_the_policy_or_stops_the_service(start: Any, someone: Someone) -> None:
    call = start(parts={"identify": someone})
    assert call("POST", "policy", {"text": "", "apply": True}).status == 403
    assert call("POST", "shutdown", {}).status == 403
    assert call("GET", "policy").status == 200
    someone.admin = True


def test_visibility_of_groups_hides_names(start: Any, someone: Someone) -> None:
    policy = (
        "partitions: {all: {gpus: ['*:*'], for: [session, job]}}\n"
        "groups: {team: {quota: {gpus: 1}}}\ndefault_group: team\nvisibility: groups\n"
    )
    call = start("1x1x8GiB", policy, parts={"identify": someone})
    job = call.submit("sleep 100", name="adas")
    call.wait(job["id"], "running")
    held = call.submit("true")
    call("POST", f"jobs/{held['id']}/hold")
    someone.user = "bob"
    seen = call("GET", "queue").body["running"][0]
    assert (seen["user"], seen["name"], seen["group"]) == (None, None, "team")
    assert "ada" not in str(call("GET", "queue").body)
    refused = call("POST", f"jobs/{job['id']}/cancel")
    assert (refused.status, refused.error["message"]) == (
        403,
        f"Job {job['id']} belongs to somebody in team.",
    )
    assert [use["user"] for use in call("GET", "report").body["use"]] == [None]
    on_card = call("GET", "pool").body["nodes"][0]["gpus"][0]["leases"][0]
    assert (on_card["user"], on_card["group"]) == (None, "team")
    someone.user, someone.admin = "ada", True
