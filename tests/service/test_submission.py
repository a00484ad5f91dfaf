"""From what was typed to what is kept: sizes, defaults, groups and the rules of the policy."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.frame import frame_of
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.submission import Rules, new_job, new_session
from jupyter_gpupool.service.wire import JobRequest, LeaseRequest

NOW = 1_800_000_000
POLICY = """
calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}
partitions:
  development:
    gpus: ["node1:*"]
    for: [session]
    slices: [{share: 1/8, cpus: 4, memory: 16GiB}, {share: 1/4}, {gpus: 1}, {gpus: 0}]
  training: {gpus: ["node2:*"], for: [job]}
groups:
  vision: {quota: {gpus: 6}, members: [ada, bob], user: {job_time: 6h, session_time: 4h, queued_jobs: 2}}
  speech: {quota: {gpus: 6}, members: [ada]}
users: {bob: {job_time: 1h}}
priorities:
  normal: {value: 0}
  urgent: {value: 1000, charge: 4, groups: [speech]}
"""


def rules(user: str = "ada", policy: str | Policy = POLICY) -> Rules:
    found = load_policy(policy) if isinstance(policy, str) else policy
    pool = SimulatedPool.parse("2x8x32GiB")
    return Rules(Identity(user), found, frame_of(found, pool, {}, NOW, None, ""))


def job(user: str = "ada", **body: Any):
    asked = {"kind": "command", "entry": {"argv": ["/bin/true"]}} | body
    return new_job(JobRequest(**asked), rules(user), None)


def refused(user: str = "ada", **body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        job(user, **body)
    return caught.value


def session(user: str = "ada", **body: Any):
    return new_session(LeaseRequest(**body), rules(user), 1, 1)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, (1, 0, 6000, 61440)),
        ({"gpus": 2}, (2, 0, 12000, 122880)),
        ({"gpus": "0"}, (0, 0, 1000, 10240)),
        ({"gpus": 0, "cpus": 3}, (0, 0, 3000, 30720)),
        ({"gpu_memory": "8GiB"}, (0, 8192, 1500, 15360)),
        ({"gpu_memory": "1GiB"}, (0, 1024, 1000, 1920)),
        ({"gpus": 1, "cpus": "2.5", "mem": "4GiB"}, (1, 0, 2500, 4096)),
    ],
)
def test_what_is_not_asked_goes_with_the_part_of_the_card(
    resources: dict[str, Any], expected: tuple[int, ...]
) -> None:
    request = job(resources=resources).request
    assert (request.gpus, request.gpu_mib, request.cpus_milli, request.memory_mib) == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"resources": {"gpu_memory": "8"}}, ["--gpu-memory", '"8" has no unit', "8GiB"]),
        ({"resources": {"gpu_memory": "0GiB"}}, ['"0GiB" is zero']),
        ({"resources": {"gpu_memory": "NaN"}}, ["not a number"]),
        ({"resources": {"gpu_memory": float("nan")}}, ["not a number"]),
        ({"resources": {"gpu_memory": "-1GiB"}}, ["negative"]),
        ({"resources": {"gpus": -1}}, ["--gpus", "negative"]),
        ({"resources": {"gpus": 1.5}}, ["--gpus", "whole number"]),
        ({"resources": {"gpu_memory": "33GiB"}}, ["more than a card has", "32GiB"]),
        ({"resources": {"gpu_memory": "128MiB"}}, ["256MiB"]),
        ({"resources": {"gpus": 1, "gpu_memory": "1GiB"}}, ["exclude each other"]),
        ({"resources": {"gpu_compute": 50}}, ["--gpu-compute", "--gpus 1"]),
        ({"resources": {"cpus": "0"}}, ["--cpus"]),
        ({"resources": {"mem": "4"}}, ["--mem", "no unit"]),
        ({"time": "8"}, ["--time", "8h"]),
        ({"time": "-1h"}, ["--time"]),
        ({"time": "1h", "grace": "6m"}, ["--grace", "5m"]),
        ({"time": "1m", "grace": "1m"}, ["--grace", "1m"]),
        ({"priority": "urgnt"}, ["urgnt", "urgent"]),
        ({"priority": "urgent"}, ["urgent", "speech"]),
        ({"window": "nigt"}, ["nigt", "night"]),
        ({"partition": "trainig"}, ["trainig", "training"]),
        ({"partition": "development"}, ["development", "sessions"]),
        ({"group": "robotics"}, ["robotics", "vision, speech"]),
        ({"environment": {"A": "\0"}}, ["environment"]),
        ({"kind": "cell", "entry": {}}, ["snapshot"]),
    ],
)
def test_a_mistake_gets_one_sentence_with_the_numbers(body: dict[str, Any], words: list[str]) -> None:
    error = refused(**body)
    text = f"{error.message} {error.hint or ''}"
    assert error.status == 422
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_without_a_group_there_are_only_cpus() -> None:
    error = refused("eve")
    assert error.code == "no_group"
    assert job("eve", resources={"gpus": 0}).group == "pool"


def test_times_have_their_defaults_and_bounds() -> None:
    assert (job().limit_s, job().grace_s) == (6 * 3600, 120)
    assert job("bob").limit_s == 3600
    assert (job(time="10s").limit_s, job(time="10s").grace_s) == (10, 5)
    assert job(time="9h").limit_s == 9 * 3600  # more than allowed is for the scheduler to refuse


def test_group_window_and_priority_are_kept() -> None:
    new = job(group="speech", priority="urgent", window="night", partition="training")
    assert (new.group, new.priority, new.window, new.request.partition) == (
        "speech",
        "urgent",
        "night",
        "training",
    )
    assert job().group == "vision"


def test_names_and_interpreter() -> None:
    script = job(
        kind="script", entry={"script": "a/train.py"}, snapshot="0" * 64, interpreter={"python": "/p"}
    )
    assert (script.name, script.interpreter["python"], script.entry["args"]) == ("train.py", "/p", [])
    assert job().name == "true"
    assert job(name="mine").name == "mine"
    assert job(held_back=["TOKEN"]).provenance["held_back"] == ["TOKEN"]


@pytest.mark.parametrize(
    ("body", "gpus", "mib", "share", "cpus", "memory"),
    [
        ({}, 0, 4096, (1, 8), 4000, 16384),
        ({"gpu_memory": "4GiB"}, 0, 4096, (1, 8), 4000, 16384),
        ({"gpu_memory": "5GiB"}, 0, 8192, (1, 4), 1500, 15360),
        ({"gpu_memory": "20GiB"}, 1, 0, None, 6000, 61440),
        ({"gpus": 1}, 1, 0, None, 6000, 61440),
        ({"gpus": 0}, 0, 0, None, 1000, 10240),
        ({"gpu_memory": "4GiB", "cpus": 1, "mem": "1GiB"}, 0, 4096, (1, 8), 1000, 1024),
    ],
)
def test_a_session_gets_the_smallest_slice_that_holds_what_it_asks(
    body: dict[str, Any], gpus: int, mib: int, share: tuple[int, int] | None, cpus: int, memory: int
) -> None:
    request = session(**body).request
    assert (request.gpus, request.gpu_mib, request.share) == (gpus, mib, share)
    assert (request.cpus_milli, request.memory_mib) == (cpus, memory)


def test_a_session_is_bounded_in_time() -> None:
    assert session().limit_s == 4 * 3600
    with pytest.raises(ApiError, match="jobs only"):
        session(partition="training")
