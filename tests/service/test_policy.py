"""The file is the truth; a bad one never replaces a good one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.sse import parse_events
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.problems import PolicyError
from jupyter_gpupool.service.policy_store import PolicyStore

GOOD = """partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups: {team: {quota: {gpus: 2}}}
default_group: team
"""
OTHER = GOOD.replace("gpus: 2", "gpus: 1")
BAD = GOOD.replace("default_group: team", "default_group: nobody")
NOW = 1_800_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


def opened(file: Path) -> PolicyStore:
    return PolicyStore(file, file.parent / "policy-history", SimulatedPool.parse("1x2x8GiB"))


def gpus(store: PolicyStore) -> dict[str, int | None]:
    return {name: group.quota.gpus for name, group in store.policy.groups.items()}


def test_without_a_file_the_built_in_policy_holds(file: Path) -> None:
    store = opened(file)
    assert store.refresh(NOW)
    assert not store.refresh(NOW)
    assert gpus(store) == {"everyone": 2000}
    assert (store.error, store.usable) == (None, True)


def test_a_change_is_seen_and_a_bad_one_changes_nothing_but_the_error(file: Path) -> None:
    file.write_text(GOOD)
    store = opened(file)
    store.refresh(NOW)
    file.write_text(OTHER)
    assert store.refresh(NOW + 1)
    assert gpus(store) == {"team": 1000}
    file.write_text(BAD)
    assert not store.refresh(NOW + 2)
    assert gpus(store) == {"team": 1000}
    assert "policy.yaml:3: default_group" in (store.error or "")
    file.write_text(OTHER)
    store.refresh(NOW + 3)
    assert store.error is None


def test_starting_on_a_bad_file_the_newest_good_one_holds(file: Path) -> None:
    file.write_text(GOOD)
    opened(file).refresh(NOW)
    file.write_text(BAD)
    store = opened(file)
    assert store.refresh(NOW + 9)
    assert gpus(store) == {"team": 2000}
    assert store.usable
    assert store.error


def test_with_no_good_one_ever_nothing_is_usable(file: Path) -> None:
    file.write_text(BAD)
    store = opened(file)
    store.refresh(NOW)
    assert not store.usable
    file.write_text(GOOD)
    store.refresh(NOW + 1)
    assert store.usable


def test_the_history_has_each_policy_once_newest_first(file: Path) -> None:
    store = opened(file)
    for turn, text in enumerate([GOOD, OTHER, OTHER, GOOD]):
        file.write_text(text + "\n" * turn if turn == 2 else text)
        store.refresh(NOW + turn)
    past = store.past()
    assert [one.since for one in past] == [NOW + 3, NOW + 2, NOW + 1, NOW]
    assert store.past_text(past[0].name) == GOOD
    assert store.past_text("../policy.yaml") is None
    assert store.since == NOW + 3


def test_writing_keeps_the_old_file_when_the_new_one_is_bad(file: Path) -> None:
    file.write_text(GOOD)
    store = opened(file)
    with pytest.raises(PolicyError):
        store.check(BAD)
    store.write(OTHER)
    assert file.read_text() == OTHER
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


def test_over_rest_check_then_apply(start: Any) -> None:
    call = start("1x2x8GiB", GOOD)
    job = call.submit("sleep 100", resources={"gpus": 2})
    call.wait(job["id"], "running")
    checked = call("POST", "policy", {"text": OTHER}).body
    assert not checked["applied"]
    assert checked["over_quota"] == ["team uses 2 cards and would be owed 1 card."]
    assert any("gpus" in line for line in checked["diff"])
    assert call("GET", "policy").body["text"] == GOOD
    applied = call("POST", "policy", {"text": OTHER, "apply": True}).body
    assert applied["applied"]
    assert call("GET", "policy").body["text"] == OTHER
    assert len(call("GET", "policy").body["history"]) == 2
    group = call("GET", "quota").body["groups"][0]
    assert group["quota"]["gpus_milli"] == 1000
    assert group["over_since"]
    assert call.job(job["id"])["state"] == "running"


def test_another_policy_is_news_once_however_it_came(start: Any) -> None:
    call = start("1x2x8GiB", GOOD)
    file = call.home.path / "policy.yaml"
    with Connection(call.home.url()).stream("events", {"Last-Event-ID": "1"}) as stream:
        kinds = (event.name for event in parse_events(stream.lines()) if event.name)
        assert next(kinds) == "reset"
        file.write_text(OTHER)
        call("GET", "policy")
        call("POST", "policy", {"text": GOOD, "apply": True})
        call("POST", "policy", {"text": GOOD, "apply": True})
        file.write_text(BAD)
        call("GET", "policy")
        call.submit("true")
        assert [next(kinds) for _ in range(3)] == ["policy", "policy", "job"]


def test_over_rest_a_bad_one_is_refused_with_every_line(start: Any) -> None:
    call = start("1x2x8GiB", GOOD)
    bad = GOOD.replace("quota", "qouta") + "users: {eve: {defualt_group: team}}\n"
    answer = call("POST", "policy", {"text": bad, "apply": True})
    assert (answer.status, answer.error["code"]) == (422, "policy_invalid")
    assert "policy.yaml:2:" in answer.error["message"]
    assert "policy.yaml:4:" in answer.error["message"]
    assert (call.home.path / "policy.yaml").read_text() == GOOD


OVERLAPPING = GOOD.replace("}}", '}, one: {gpus: ["node1:0"], for: [job]}}', 1)


@pytest.mark.parametrize("text", [BAD, OVERLAPPING])
def test_what_is_wrong_is_said_of_the_file_that_was_given(file: Path, text: str) -> None:
    with pytest.raises(PolicyError, match=r"^/tmp/x\.yaml:\d: "):
        opened(file).check(text, "/tmp/x.yaml")


def test_a_pool_without_a_good_policy_serves_and_starts_nothing(start: Any) -> None:
    call = start("1x2x8GiB", BAD)
    answer = call("POST", "jobs", call.command("true"))
    assert (answer.status, answer.error["code"]) == (503, "policy_invalid")
    assert "default_group" in answer.error["hint"]
    assert call("GET", "pool").body["policy_error"]
    assert call("GET", "/services/gpupool/health").body["status"] == "degraded"
    (call.home.path / "policy.yaml").write_text(GOOD)
    assert call.wait(call.submit("true")["id"])["state"] == "completed"


def test_work_left_from_before_waits_for_a_good_policy(spawn: Any) -> None:
    service = spawn("1x1x8GiB")
    service.call.wait(service.call.submit("sleep 100")["id"], "running")
    waits = service.call.submit("true")
    service.kill()
    for old in (service.home.path / "policy-history").iterdir():
        old.unlink()
    (service.home.path / "policy.yaml").write_text(BAD)
    service = spawn("1x1x8GiB")
    assert service.call.job(waits["id"])["waiting"]["reason"] == "Unavailable"
    time.sleep(0.2)
    assert service.call.job(waits["id"])["state"] == "queued"


def test_removing_a_file_that_was_never_good_counts_as_a_change(file: Path) -> None:
    file.write_text(BAD)
    store = opened(file)
    store.refresh(NOW)
    assert not store.usable
    file.unlink()
    assert store.refresh(NOW + 1)
    assert store.usable
