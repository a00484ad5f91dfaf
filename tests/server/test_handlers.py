from __future__ import annotations

import json

import pytest

from jupyter_gpupool import _jupyter_server_extension_points

QUOTA = {"user": "ada", "groups": []}
REFUSAL = {
    "error": {
        "code": "conflict",
        "message": "Job 17 has ended: it cannot be held.",
        "used": None,
        "limit": None,
        "unit": None,
        "retry_at": None,
        "hint": None,
    }
}


def test_jupyter_server_finds_the_extension():
    assert _jupyter_server_extension_points() == [{"module": "jupyter_gpupool.server"}]


async def test_loading_the_extension_finds_and_starts_nothing(ask, found):
    assert found == []


@pytest.mark.parametrize(
    "path", ["whoami", "quota", "pool", "queue", "leases", "reservations", "jobs", "jobs/17"]
)
async def test_things_to_look_at_are_passed_on_as_they_are(ask, service, path):
    service.says(f"GET {path}", QUOTA)
    answer = await ask(path)
    assert (answer.code, json.loads(answer.body)) == (200, QUOTA)
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "requeue"])
async def test_things_to_do_are_passed_on(ask, service, verb):
    service.says(f"POST jobs/17/{verb}", {"id": 17})
    answer = await ask(f"jobs/17/{verb}", "POST")
    assert (answer.code, json.loads(answer.body)) == (200, {"id": 17})
    assert [call.key for call in service.asked] == [f"POST jobs/17/{verb}"]


async def test_the_service_is_found_once(ask, service, found):
    service.says("GET quota", QUOTA)
    for _ in range(3):
        await ask("quota")
    assert found == ["find"]


async def test_a_log_is_text_with_the_offset_of_what_follows(ask, service):
    service.says("GET jobs/17/logs?offset=5", b"<b>loss</b>", X_Gpupool_Offset="16", X_Gpupool_Ended="false")
    answer = await ask("jobs/17/logs", params={"offset": 5})
    assert answer.body == b"<b>loss</b>"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Gpupool-Offset"] == "16"
    assert answer.headers["X-Gpupool-Ended"] == "false"


async def test_only_known_parameters_pass_and_the_labs_token_never_does(ask, service, jp_serverapp):
    service.says("GET jobs?state=running&limit=5", {"jobs": []})
    secret = jp_serverapp.identity_provider.token
    answer = await ask("jobs", params={"limit": 5, "state": "running", "token": secret, "_": "123"})
    assert answer.code == 200
    (call,) = service.asked
    assert secret not in json.dumps(call.headers)


@pytest.mark.parametrize("status", [401, 403, 409, 503])
async def test_a_refusal_of_the_service_is_passed_on_in_its_own_words(ask, service, status):
    service.says("POST jobs/17/hold", REFUSAL, status=status)
    answer = await ask("jobs/17/hold", "POST")
    assert (answer.code, json.loads(answer.body)) == (status, {**REFUSAL, "startable": False})


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "does not know your token"), (403, "does not let you in"), (503, "does not answer")],
)
async def test_a_refusal_of_a_hub_or_a_proxy_before_it_is_a_sentence(ask, service, status, words):
    service.says("GET quota", b"<h1>No</h1>", status=status)
    answer = await ask("quota")
    assert answer.code == status
    assert words in json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("policy", "GET"),
        ("leases", "POST"),
        ("leases/17", "GET"),
        ("jobs", "POST"),
        ("quota", "POST"),
        ("jobs/17/cancel", "GET"),
        ("jobs/x", "GET"),
        ("jobs/../policy", "GET"),
        ("jobs/17/artifacts/a", "GET"),
    ],
)
async def test_nothing_else_passes(ask, service, path, method):
    assert (await ask(path, method)).code in (404, 405)
    assert service.asked == []


async def test_looking_does_not_make_the_user_active_but_acting_does(ask, service, jp_web_app):
    service.says("GET queue", {})
    service.says("POST jobs/17/cancel", {})
    before = jp_web_app.settings["api_last_activity"] = object()
    assert (await ask("queue")).code == 200
    assert jp_web_app.settings["api_last_activity"] is before
    assert (await ask("jobs/17/cancel", "POST")).code == 200
    assert jp_web_app.settings["api_last_activity"] is not before
