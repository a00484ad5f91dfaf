"""Bad input gets one clear sentence and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

TEAM = """
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups: {team: {quota: {gpus: 2}, limit: {gpus: 2}, user: {queued_jobs: 2, job_time: 2h}}}
default_group: team
"""


@pytest.fixture(scope="module")
def call(start_once: Any) -> Any:
    return start_once("1x3x8GiB", TEAM)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"gpu": 1}, "unknown_option", ["gpu"]),
        ({"resources": {"gpu_memry": "1GiB"}}, "unknown_option", ["gpu_memry", "Did you mean gpu_memory?"]),
        ({"resources": {"gpu_memory": "8"}}, "invalid_option", ["no unit", "8GiB"]),
        ({"resources": {"gpu_memory": "0GiB"}}, "invalid_option", ["zero"]),
        ({"resources": {"gpu_memory": "NaN"}}, "invalid_option", ["not a number"]),
        ({"resources": {"gpu_memory": "-1"}}, "invalid_option", ["negative"]),
        ({"resources": {"gpu_memory": "9GiB"}}, "invalid_option", ["more than a card", "8GiB"]),
        ({"resources": {"gpus": 3}}, "exceeds_limit", ["3", "2"]),
        ({"resources": {"gpus": 1, "gpu_type": ["h100"]}}, "no_such_gpu", ["h100"]),
        ({"time": "3h"}, "exceeds_limit", ["3h", "2h"]),
        ({"time": "soon"}, "invalid_option", ["soon"]),
        ({"priority": "hgh"}, "invalid_option", ["hgh", "high"]),
        ({"group": "other"}, "not_a_member", ["other"]),
        ({"entry": {"argv": []}}, "invalid_option", ["argv"]),
        ({"resources": {"gpus": True}}, "invalid_option", ["resources.gpus is True", "a number or a text"]),
        ({"kind": "dance"}, "invalid_option", ["dance"]),
    ],
)
def test_a_submit(call: Any, body: dict[str, Any], code: str, words: list[str]) -> None:
    answer = call("POST", "jobs", call.command("true", **body))
    assert answer.status == 422, answer
    error = answer.error
    assert error["code"] == code
    text = f"{error['message']} {error['hint'] or ''}"
    assert all(word in text for word in words), text
    assert "\n" not in text
    assert "Traceback" not in text
    assert call("GET", "jobs").body["jobs"] == []


def test_too_many_in_the_queue(start: Any) -> None:
    call = start("1x2x8GiB", TEAM)
    for _ in range(2):
        call.submit("true", window=None, resources={"gpus": 2}, entry={"argv": ["sleep", "100"]})
    while call("GET", "queue").body["running"] == []:
        pass
    call.submit("true")
    answer = call("POST", "jobs", call.command("true"))
    assert (answer.status, answer.error["code"]) == (422, "exceeds_limit")
    assert (answer.error["used"], answer.error["limit"]) == (2, 2)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "jobs", b"{", 400),
        ("POST", "jobs", b"[1]", 400),
        ("POST", "jobs?dry_run=maybe", b"{}", 422),
        ("GET", "jobs?limit=0", None, 422),
        ("GET", "jobs?limit=many", None, 422),
        ("GET", "jobs?unknown=1", None, 422),
        ("GET", "jobs/0", None, 404),
        ("GET", "jobs/first", None, 422),
        ("GET", "jobs/99999999999999999999", None, 422),
        ("GET", "jobs/1/logs?offset=x", None, 422),
        ("GET", "leases/1", None, 404),
        ("GET", "nothing/here", None, 404),
        ("DELETE", "jobs", None, 405),
        ("PATCH", "jobs", b"{}", 405),
        ("PUT", "snapshots/abc", b"x", 422),
        ("PUT", "snapshots/" + "0" * 64, b"x", 422),
        ("POST", "policy", b'{"text": "\\tgroups:"}', 422),
        ("POST", "shutdown", b'{"keep": true}', 422),
    ],
)
def test_every_other_request(call: Any, method: str, path: str, body: bytes | None, status: int) -> None:
    answer = call(method, path, body)
    assert answer.status == status, answer
    assert set(answer.error) == {"code", "message", "used", "limit", "unit", "retry_at", "hint"}
    assert answer.error["message"].endswith(".")
    assert call("GET", "whoami").status == 200


def test_an_upload_over_the_cap(start: Any) -> None:
    call = start(snapshot_cap_mib=1)
    answer = call("PUT", "snapshots/" + "0" * 64, b"x" * (1024 * 1024 + 1))
    assert (answer.status, answer.error["code"], answer.error["limit"]) == (413, "snapshot_too_large", 1)
    assert [file for file in call.home.path.glob("snapshots/**/*") if file.is_file()] == []
