"""The service of a real Hub: who asks, by token, cookie, or a job's own token; and what holds without it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import urllib.request
from collections.abc import Iterator

import pytest

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.service.config import HubConfig
from jupyter_gpupool.service.hub import Hub
from jupyter_gpupool.service.serving import MAX_BODY
from tests.hub.process import until
from tests.hub.site import Person
from tests.service.conftest import Caller, tar
from tests.service.real_hub import BASE, SERVICE_TOKEN, RealHub, has_ended

pytestmark = pytest.mark.requires_server("node")

ACCESS = "access:services!service=gpupool"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    found = RealHub(tmp_path_factory.mktemp("hub"))
    try:
        yield found.start()
        found.local("POST", "shutdown", {"keep_jobs": False})
    finally:
        found.stop()


def test_a_token_says_who_asks_and_in_which_groups(hub: RealHub) -> None:
    token = hub.token_of("ada")
    for status, who in (hub.pool("GET", "whoami", token=token), hub.direct("GET", "whoami", token=token)[:2]):
        assert status == 200, who
        assert (who["user"], who["admin"], who["default_group"]) == ("ada", False, "vision")
        assert [group["name"] for group in who["groups"]] == ["vision"]


def test_groups_are_the_hubs_and_a_stranger_to_all_of_them_has_none(hub: RealHub) -> None:
    _, who = hub.pool("GET", "whoami", token=hub.token_of("nemo"))
    assert (who["groups"], who["default_group"]) == ([], None)


def test_a_change_of_groups_is_seen_soon(hub: RealHub) -> None:
    token = hub.token_of("dora")
    assert hub.pool("GET", "whoami", token=token)[1]["default_group"] is None
    hub.granted("POST", "groups/ops/users", {"users": ["dora"]})
    until(lambda: hub.pool("GET", "whoami", token=token)[1]["default_group"] == "ops", "seen", patience=15)


def test_each_action_takes_its_scope(hub: RealHub) -> None:
    reads = hub.token_of("ada", ACCESS)
    assert hub.pool("GET", "queue", token=reads)[0] == 200
    status, reply = hub.pool("POST", "jobs", Caller.command("true"), token=reads)
    assert status == 403
    assert "custom:gpupool:submit" in reply["error"]["message"]
    status, reply = hub.pool("GET", "whoami", token=hub.token_of("ada", "read:users:name!user"))
    assert (status, ACCESS in reply["error"]["message"]) == (403, True)
    assert hub.pool("POST", "policy", {"text": ""}, token=hub.token_of("ada"))[0] == 403
    assert hub.pool("POST", "policy", {"text": ""}, token=hub.token_of("root-of-pool"))[0] == 422


def test_only_the_hubs_spawner_may_lease_for_others(hub: RealHub) -> None:
    body = {"user": "ada", "groups": ["vision"], "version": __version__}
    for user in ("ada", "root-of-pool"):
        assert hub.pool("POST", "spawns", body, token=hub.token_of(user))[0] == 403
    spawner = (hub.folder / "spawner-token").read_text()
    assert hub.direct("GET", "whoami", token=spawner).body["user"] == "service:gpupool-spawner"
    assert hub.direct("POST", "jobs", Caller.command("true"), token=spawner).status == 403


def test_the_hub_tells_the_service_which_servers_it_knows(hub: RealHub) -> None:
    async def servers() -> dict[str, set[str]] | None:
        asked = Hub(HubConfig(f"http://127.0.0.1:{hub.hub_port}{BASE}hub/api", SERVICE_TOKEN, hub.hub_sock))
        try:
            return await asked.servers()
        finally:
            await asked.close()

    hub.token_of("ada")
    assert asyncio.run(servers()) == {}


def test_code_of_any_accepted_size_goes_by_the_hubs_socket_too(hub: RealHub) -> None:
    code = tar({"a.py": "x = 1\n" * (MAX_BODY // 5)})
    digest = hashlib.sha256(code).hexdigest()
    ada = Connection(f"unix:{hub.hub_sock}", token=hub.token_of("ada"), pauses=())
    assert ada.request("PUT", f"snapshots/{digest}", code).status == 201
    assert ada.request("HEAD", f"snapshots/{digest}").status == 200
    assert hub.direct("HEAD", f"snapshots/{digest}", token=hub.token_of("bob")).status == 404


def test_a_stream_ends_with_the_token_it_was_opened_with(hub: RealHub) -> None:
    made = hub.granted("POST", "users/ada/tokens", {})
    asked = urllib.request.Request(
        f"{hub.url}/services/gpupool/api/v1/events", headers={"Authorization": f"token {made['token']}"}
    )
    with urllib.request.urlopen(asked, timeout=60) as stream:
        assert stream.readline() == b": hello\n"
        hub.granted("DELETE", f"users/ada/tokens/{made['id']}")
        other = hub.token_of("ada")
        until(lambda: hub.pool("GET", "whoami", token=made["token"])[0] == 401, "the token is void")
        _, job = hub.pool("POST", "jobs", Caller.command("true"), token=other)
        assert b"event:" not in stream.read()
        hub.local.wait(job["id"])


def test_an_unknown_token_is_told_which_hub_was_asked(hub: RealHub) -> None:
    status, reply = hub.pool("GET", "whoami", token="of-another-hub")
    assert (status, reply["error"]["code"]) == (401, "unknown_token")
    assert f"127.0.0.1:{hub.hub_port}" in reply["error"]["message"]


def test_without_a_token_there_is_only_bare_health(hub: RealHub) -> None:
    found = hub.direct("GET", "/services/gpupool/health")
    assert found.body == {"status": "ok", "version": __version__}
    assert found.headers["x-gpupool-version"] == __version__
    for path in ("whoami", "queue", "openapi.json", "/services/gpupool/metrics", "nowhere"):
        answer = hub.direct("GET", path)
        assert (answer.status, answer.error["code"]) == (401, "not_logged_in")
    known = hub.direct("GET", "/services/gpupool/health", token=hub.token_of("ada"))
    assert known.body["troubles"] == []


def test_a_browser_logs_in_at_the_hub_and_comes_back(hub: RealHub) -> None:
    ada = Person(hub, "ada")
    status, text, url = ada.visit("/services/gpupool/api/v1/whoami")
    assert (status, url) == (200, f"{hub.url}/services/gpupool/api/v1/whoami"), text
    assert json.loads(text)["user"] == "ada"
    named = {found.name: found for found in ada.cookies if found.path == f"{BASE}services/gpupool/"}
    assert set(named) == {"service-gpupool", "_xsrf"}
    assert named["service-gpupool"].has_nonstandard_attr("HttpOnly")


def test_a_browsers_change_needs_proof_that_the_page_is_its_own(hub: RealHub) -> None:
    ada = Person(hub, "ada")
    ada.visit("/services/gpupool/api/v1/whoami")
    path, body = "/services/gpupool/api/v1/jobs", json.dumps(Caller.command("true")).encode()
    for headers in ({}, {"X-Xsrftoken": "made up"}, {"X-Xsrftoken": ada.xsrf}):
        status, text, _ = ada.send("POST", path, body, **headers)
        assert status == 403
        assert "_xsrf" in json.loads(text)["error"]["message"]
    status, text, _ = ada.send("POST", path, body, **{"X-Xsrftoken": ada.xsrf_of("/services/gpupool/")})
    assert status == 201, text
    job = json.loads(text)
    assert job["user"] == "ada"
    hub.local.wait(job["id"])
    status, text, _ = ada.send(
        "POST", "/services/gpupool/api/v1/policy", b"{}", **{"X-Xsrftoken": ada.xsrf_of("/services/gpupool/")}
    )
    assert status == 403


def test_a_login_that_went_wrong_is_one_sentence(hub: RealHub) -> None:
    status, text, _ = Person(hub, "ada").visit("/services/gpupool/oauth_callback?code=x&state=y")
    assert (status, json.loads(text)["error"]["code"]) == (403, "login_failed")


def test_the_notification_settings_are_only_for_administrators(hub: RealHub) -> None:
    _, seen = hub.pool("GET", "policy", token=hub.token_of("ada"))
    _, whole = hub.pool("GET", "policy", token=hub.token_of("root-of-pool"))
    assert "mail.example.org" in whole["text"]
    assert "mail.example.org" not in json.dumps(seen)
    assert "managers: [bob]" in seen["text"]


def test_a_manager_controls_the_jobs_of_the_group(hub: RealHub) -> None:
    _, job = hub.pool("POST", "jobs", Caller.command("sleep 100"), token=hub.token_of("ada"))
    assert hub.pool("POST", f"jobs/{job['id']}/cancel", token=hub.token_of("carl"))[0] == 403
    assert hub.pool("GET", f"jobs/{job['id']}/logs", token=hub.token_of("bob"))[0] == 404
    status, reply = hub.pool("POST", f"jobs/{job['id']}/cancel", token=hub.token_of("bob"))
    assert status == 200, reply


def test_jobs_go_on_and_report_without_their_hub_and_the_next_hub_takes_over(hub: RealHub) -> None:
    token = hub.token_of("ada")
    told = hub.folder / "told"
    command = Caller.command(f'echo "$GPUPOOL_TOKEN" > {told}; sleep 300')
    _, job = hub.pool("POST", "jobs", command, token=token)
    until(lambda: told.exists() and told.read_text(), "the job runs")
    own = told.read_text().strip()
    assert own.startswith("gpj_")
    first = hub.served_by()

    hub.kill()
    answer = hub.direct("GET", "queue", token="never asked before")
    assert (answer.status, answer.error["code"]) == (503, "hub_unreachable")
    assert str(hub.hub_port) in answer.error["message"]
    assert hub.direct("GET", "/services/gpupool/health").status == 200
    assert hub.direct("GET", "whoami", token=own).body["user"] == "ada"
    assert hub.direct("GET", f"jobs/{job['id']}", token=own).body["state"] == "running"
    for method, path in (("GET", "queue"), ("GET", "jobs/1"), ("POST", f"jobs/{job['id']}/cancel")):
        assert hub.direct(method, path, token=own).status == 403
    assert hub.direct("GET", "whoami", token=own[:-1] + "x").status == 401
    assert hub.local("GET", f"jobs/{job['id']}").body["state"] == "running"

    hub.start()
    until(lambda: hub.served_by() not in (None, first), "another service", hub.said)
    assert has_ended(first)
    until(lambda: hub.direct("GET", f"jobs/{job['id']}", token=own).status == 200, "it answers", hub.said)
    assert hub.direct("GET", f"jobs/{job['id']}", token=own).body["state"] == "running"
    assert hub.pool("POST", f"jobs/{job['id']}/cancel", token=hub.token_of("ada"))[0] == 200
    hub.local.wait(job["id"])
    assert hub.direct("GET", "whoami", token=own).status == 401


def test_it_goes_with_its_hub_and_leaves_the_jobs(hub: RealHub) -> None:
    _, job = hub.pool("POST", "jobs", Caller.command("sleep 300"), token=hub.token_of("ada"))
    hub.local.wait(job["id"], "running")
    pid = hub.served_by()
    hub.stop()
    assert has_ended(pid)
    assert not hub.hub_sock.exists()
    hub.start()
    assert hub.local.job(job["id"])["attempt"] == 1
    assert hub.local("POST", f"jobs/{job['id']}/cancel").status == 200
