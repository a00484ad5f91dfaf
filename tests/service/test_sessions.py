"""Leases for interactive work live with the process that holds them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

SHORT = """
partitions: {all: {gpus: ["*:*"], for: [session, job], slices: [{share: 1/2}, {gpus: 1}]}}
groups: {team: {quota: {gpus: 2}, user: {sessions: 2}}}
default_group: team
"""


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


def until(look: Any, wanted: Any, patience: float = 10) -> None:
    give_up = time.monotonic() + patience
    while (found := look()) != wanted:
        assert time.monotonic() < give_up, found
        time.sleep(0.02)


def test_a_lease_says_what_its_processes_need(start: Any) -> None:
    call = start("1x1x8GiB", SHORT)
    answer = call("POST", "leases", {"gpu_memory": "3GiB", "name": "kernel"})
    assert answer.status == 201
    lease = answer.body
    assert (lease["state"], lease["request"]["gpu_mib"], lease["name"]) == ("held", 4096, "kernel")
    assert lease["environment"]["GPUPOOL_GPUS"] == "SIM-node1-0"
    assert lease["placement"]["gpus"] == [{"uuid": "SIM-node1-0", "mib": 4096, "index": 0, "node": "node1"}]
    assert call("GET", "quota").body["groups"][0]["user"]["used"]["sessions"] == 1
    assert [one["id"] for one in call("GET", "leases").body["leases"]] == [lease["id"]]
    assert call("DELETE", f"leases/{lease['id']}").body["state"] == "free"
    assert call("GET", "leases").body["leases"] == []
    assert call("GET", "quota").body["groups"][0]["used"]["gpus_milli"] == 0


def test_two_share_a_card_and_the_third_waits(start: Any) -> None:
    call = start("1x1x8GiB", SHORT.replace("sessions: 2", "sessions: 5"))
    _, second = (call("POST", "leases", {"gpu_memory": "4GiB"}).body for _ in range(2))
    answer = call("POST", "leases", {"gpu_memory": "4GiB"})
    assert (answer.status, answer.body["state"]) == (202, "requested")
    assert answer.body["waiting"]["message"]
    third = answer.body["id"]
    refused = call("POST", "leases", {"gpu_memory": "4GiB", "wait": False})
    assert (refused.status, refused.error["code"]) == (409, "no_room")
    assert refused.error["retry_at"] == second["expires_at"]  # the third comes before it
    call("DELETE", f"leases/{second['id']}")
    assert call("GET", f"leases/{third}?wait=5").body["state"] == "held"


def test_a_limit_of_sessions_makes_wait(start: Any) -> None:
    call = start("1x2x8GiB", SHORT)
    for _ in range(2):
        assert call("POST", "leases", {"gpu_memory": "4GiB"}).status == 201
    waiting = call("POST", "leases", {"gpu_memory": "4GiB"}).body["waiting"]
    assert waiting["reason"] == "UserLimit"


def test_it_ends_with_its_process(start: Any, holder: subprocess.Popen[bytes]) -> None:
    call = start("1x1x8GiB", SHORT)
    lease = call("POST", "leases", {"gpus": 1, "pid": holder.pid}).body
    waits = call("POST", "leases", {"gpus": 1}).body
    assert (lease["state"], waits["state"]) == ("held", "requested")
    holder.kill()
    holder.wait()
    until(lambda: call("GET", f"leases/{lease['id']}").body["state"], "free")
    assert call("GET", f"leases/{lease['id']}").body["reason"] == "Its process has ended."
    until(lambda: call("GET", f"leases/{waits['id']}").body["state"], "held")


def test_one_that_waits_ends_with_its_process_too(start: Any, holder: subprocess.Popen[bytes]) -> None:
    call = start("1x1x8GiB", SHORT)
    call("POST", "leases", {"gpus": 1})
    waits = call("POST", "leases", {"gpus": 1, "pid": holder.pid}).body
    holder.kill()
    holder.wait()
    until(lambda: call("GET", f"leases/{waits['id']}").body["state"], "free")
    assert call("GET", "queue").body["waiting"] == []


def test_its_time_is_bounded(start: Any) -> None:
    call = start("1x1x8GiB", SHORT)
    lease = call("POST", "leases", {"gpus": 1, "time": "1s"}).body
    until(lambda: call("GET", f"leases/{lease['id']}").body["state"], "free")
    assert call("GET", f"leases/{lease['id']}").body["reason"] == "Its time is over."


@pytest.mark.parametrize(("enforce", "ends"), [("stop", True), ("warn", False)])
def test_its_process_ends_with_its_time_where_the_policy_says_so(
    start: Any, holder: subprocess.Popen[bytes], enforce: str, ends: bool
) -> None:
    call = start("1x1x8GiB", f"{SHORT}enforce: {enforce}\n")
    lease = call("POST", "leases", {"gpus": 1, "time": "1s", "pid": holder.pid}).body
    until(lambda: call("GET", f"leases/{lease['id']}").body["state"], "free")
    if ends:
        assert holder.wait(10) == -signal.SIGTERM
    assert (holder.poll() is not None) == ends


@pytest.mark.parametrize("pid", [2**22 + 1, 999_999_999])
def test_a_process_that_is_not_there_holds_nothing(start: Any, pid: int) -> None:
    call = start("1x1x8GiB", SHORT)
    answer = call("POST", "leases", {"gpus": 1, "pid": pid})
    assert (answer.status, answer.error["code"]) == (422, "invalid_option")


def test_sessions_are_found_again_after_a_crash(spawn: Any, holder: subprocess.Popen[bytes]) -> None:
    service = spawn("1x2x8GiB")
    short = subprocess.Popen(["sleep", "100"])
    lives = service.call("POST", "leases", {"gpus": 1, "pid": holder.pid}).body
    dies = service.call("POST", "leases", {"gpus": 1, "pid": short.pid}).body
    service.kill()
    short.kill()
    short.wait()
    service = spawn("1x2x8GiB")
    assert service.call("GET", f"leases/{lives['id']}").body["state"] == "held"
    assert service.call("GET", f"leases/{dies['id']}").body["state"] == "free"
    holder.kill()
    holder.wait()
    until(lambda: service.call("GET", f"leases/{lives['id']}").body["state"], "free")


def test_sessions_come_before_jobs(start: Any) -> None:
    call = start("1x1x8GiB", SHORT)
    first = call("POST", "leases", {"gpus": 1}).body
    job = call.submit("true")
    second = call("POST", "leases", {"gpus": 1}).body
    call("DELETE", f"leases/{first['id']}")
    assert call("GET", f"leases/{second['id']}?wait=5").body["state"] == "held"
    assert call.job(job["id"])["state"] == "queued"
    call("DELETE", f"leases/{second['id']}")
    assert call.wait(job["id"])["state"] == "completed"
