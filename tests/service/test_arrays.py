"""An array is submitted, shown, acted on and counted as one, and each of its tasks is an ordinary job."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jupyter_gpupool.ledger.arrays import FRESH

LIMITED = """
partitions: {all: {gpus: ["*:*"], for: [session, job]}}
groups: {team: {quota: {gpus: 2}, user: {queued_jobs: 100}}}
default_group: team
"""
CPU_ONLY = {"gpus": 0, "cpus": 0.01, "mem": "1MiB"}


def tasks(call: Any, array: dict[str, Any]) -> list[dict[str, Any]]:
    answer = call("GET", f"jobs?array={array['id']}&limit=10000")
    assert answer.status == 200, answer
    return answer.body["jobs"]


def states(call: Any, array: dict[str, Any]) -> dict[str, int]:
    return call.job(array["id"])["array"]["states"]


@pytest.fixture
def blocked(start: Any) -> Any:
    """A service whose only card is taken."""
    call = start("1x1x8GiB")
    call.wait(call.submit("exec sleep 100")["id"], "running")
    return call


def test_each_task_runs_once_with_its_own_number_log_and_files(start: Any) -> None:
    call = start("1x2x8GiB")
    array = call.submit(
        "echo $GPUPOOL_ARRAY_ID/$GPUPOOL_ARRAY_INDEX; echo $GPUPOOL_ARRAY_INDEX > $GPUPOOL_OUT_DIR/n",
        array="2-6:2",
    )
    assert array["array"] == {"tasks": "2-6:2", "count": 3, "limit": None, "states": {"queued": 3}}
    ended = call.wait(array["id"])
    assert (ended["state"], ended["exit_code"]) == ("completed", 0)
    assert ended["outcome"] == "All 3 tasks completed."
    for index, job in zip((2, 4, 6), tasks(call, array), strict=True):
        assert (job["array_id"], job["array_index"], job["attempt"]) == (array["id"], index, 1)
        assert call("GET", f"jobs/{array['id']}[{index}]/logs").body == f"{array['id']}/{index}\n".encode()
        assert call.log(job["id"]) == f"{array['id']}/{index}\n".encode()
        assert call("GET", f"jobs/{job['id']}/artifacts/n").body == f"{index}\n".encode()


def test_more_tasks_than_wait_at_once_run_all_of_them_once(start: Any) -> None:
    call = start("1x2x8GiB")
    count = 2 * FRESH + 5
    where = str(call.home.path / "marks")
    array = call.submit(f"echo $GPUPOOL_ARRAY_INDEX >> {where}", array=f"0-{count - 1}", resources=CPU_ONLY)
    assert call.wait(array["id"], patience=60)["state"] == "completed"
    with open(where) as marks:
        assert sorted(map(int, marks)) == list(range(count))


def test_lists_and_the_queue_have_it_once(blocked: Any) -> None:
    call = blocked
    array = call.submit("true", array="0-99", name="sweep")
    listed = call("GET", "jobs").body["jobs"]
    assert [job["id"] for job in listed] == [array["id"], 1]
    queue = call("GET", "queue").body
    assert [job["id"] for job in queue["waiting"]] == [array["id"]]
    assert queue["waiting"][0]["array"]["states"] == {"queued": 100}
    shown = call.job(array["id"])
    assert (shown["state"], shown["waiting"]["position"]) == ("queued", 1)
    assert shown["waiting"]["reason"] in ("Resources", "Priority")
    assert call("GET", "jobs?state=queued").body["jobs"][0]["id"] == array["id"]
    assert call("GET", "jobs?state=completed").body["jobs"] == []


def test_a_task_that_is_no_job_yet_can_be_looked_at(blocked: Any) -> None:
    call = blocked
    array = call.submit("true", array="0-99")
    task = call.job(f"{array['id']}[77]")
    assert (task["id"], task["array_id"], task["array_index"]) == (array["id"], array["id"], 77)
    assert (task["state"], task["attempt"], task["array"]) == ("queued", 0, None)
    assert task["waiting"]["message"] == "Waits behind 77 earlier tasks of its array."
    answer = call("GET", f"jobs/{array['id']}[77]/logs")
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert "has not run" in answer.error["message"]
    answer = call("GET", f"jobs/{array['id']}/logs")
    assert "each with a log and files of its own" in answer.error["message"]
    assert f"{array['id']}[0]" in answer.error["hint"]
    assert [job["array_index"] for job in tasks(call, array)] == list(range(100))


@pytest.mark.parametrize("index", [5, 77])
def test_one_task_can_be_held_released_and_cancelled(blocked: Any, index: int) -> None:
    call = blocked
    array = call.submit("true", array="0-99")
    name = f"{array['id']}[{index}]"
    held = call("POST", f"jobs/{name}/hold").body
    assert (held["state"], held["array_index"]) == ("held", index)
    assert held["waiting"]["clears"] == f"Let it start with: jupyter gpupool release {name}"
    assert states(call, array) == {"queued": 99, "held": 1}
    assert call("POST", f"jobs/{name}/release").body["state"] == "queued"
    assert call("POST", f"jobs/{name}/cancel").body["state"] == "cancelled"
    assert states(call, array) == {"queued": 99, "cancelled": 1}


def test_the_whole_can_be_held_released_and_cancelled(start: Any) -> None:
    call = start("1x1x8GiB")
    array = call.submit("exec sleep 100", array="0-99%4")
    call.wait(array["id"], "running")
    held = call("POST", f"jobs/{array['id']}/hold").body
    assert held["state"] == "running"
    assert held["array"]["states"] == {"running": 1, "held": 99}
    assert call.job(f"{array['id']}[99]")["state"] == "held"
    released = call("POST", f"jobs/{array['id']}/release").body
    assert released["array"]["states"] == {"running": 1, "queued": 99}
    call("POST", f"jobs/{array['id']}/cancel")
    ended = call.wait(array["id"])
    assert (ended["state"], ended["array"]["states"]) == ("cancelled", {"cancelled": 100})
    assert ended["outcome"] == "Of 100 tasks 0 completed, 100 cancelled."
    assert call.job(f"{array['id']}[99]")["outcome"].startswith("Cancelled by ")
    answer = call("POST", f"jobs/{array['id']}[99]/hold")
    assert (answer.status, "was cancelled" in answer.error["message"]) == (409, True)
    assert call("POST", f"jobs/{array['id']}/cancel").status == 200


def test_what_runs_of_it_is_queued_again(start: Any) -> None:
    call = start("1x2x8GiB")
    array = call.submit("exec sleep 100", array="0-2%2")
    call.wait(f"{array['id']}[1]", "running")
    assert call("POST", f"jobs/{array['id']}/requeue").status == 200
    give_up = time.monotonic() + 20
    while [job["attempt"] for job in tasks(call, array)] != [2, 2, 0]:
        assert time.monotonic() < give_up, tasks(call, array)
        time.sleep(0.02)
    call("POST", f"jobs/{array['id']}/cancel")
    answer = call("POST", f"jobs/{call.wait(array['id'])['id']}/requeue")
    assert (answer.status, answer.error["hint"]) == (409, "Submit it again.")


def test_no_more_run_at_once_than_it_says(start: Any) -> None:
    call = start("1x4x8GiB")
    array = call.submit("exec sleep 100", array="0-9%2")
    call.wait(f"{array['id']}[1]", "running")
    third = call.job(f"{array['id']}[2]")
    assert third["waiting"]["reason"] == "ArrayLimit"
    assert states(call, array) == {"running": 2, "queued": 8}


def test_a_failed_task_is_named(start: Any) -> None:
    call = start("1x2x8GiB")
    array = call.submit("exit $GPUPOOL_ARRAY_INDEX", array="0,3")
    ended = call.wait(array["id"])
    assert (ended["state"], ended["exit_code"]) == ("failed", 3)
    assert ended["outcome"] == f"Of 2 tasks 1 completed, 1 failed: {array['id']}[3]."
    assert call.job(f"{array['id']}[3]")["diagnosis"]["kind"] == "exit_code"


def test_the_same_key_gives_the_same_array(blocked: Any) -> None:
    call = blocked
    body = call.command("true", array="0-9")
    first = call("POST", "jobs", body, Idempotency_Key="k")
    second = call("POST", "jobs", body, Idempotency_Key="k")
    assert (first.status, second.status) == (201, 201)
    assert first.body["id"] == second.body["id"]
    assert len(call("GET", "jobs").body["jobs"]) == 2


def test_a_dry_run_counts_the_tasks_and_submits_none(blocked: Any) -> None:
    answer = blocked("POST", "jobs?dry_run=true", blocked.command("true", array="0-9"))
    assert (answer.status, answer.body["tasks"]) == (200, 10)
    assert answer.body["reason"] == "Resources"
    assert len(blocked("GET", "jobs").body["jobs"]) == 1


def test_the_limit_of_the_queue_counts_all_tasks(start: Any) -> None:
    call = start("1x2x8GiB", LIMITED)
    call.wait(call.submit("exec sleep 100", resources={"gpus": 2})["id"], "running")
    call.submit("true", array="0-69")
    answer = call("POST", "jobs", call.command("true", array="0-30"))
    assert (answer.status, answer.error["code"]) == (422, "exceeds_limit")
    assert (answer.error["used"], answer.error["limit"]) == (70, 100)
    assert "70 jobs queued in team, and this array has 31 tasks; the limit is 100" in answer.error["message"]
    call.submit("true", array="0-29")
    assert call("POST", "jobs", call.command("true")).status == 422


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"array": "9-0"}, ["counts down", "0-9"]),
        ({"array": "0-10000"}, ["10,001 tasks", "10,000"]),
        ({"array": "0-9%0"}, ["%0"]),
        ({"retries": -1}, ["--retries", "negative"]),
        ({"retries": 101}, ["--retries", "100"]),
        ({"notify": ["ends"]}, ["notify.0", "ends", "'end'"]),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(
    blocked: Any, body: dict[str, Any], words: list[str]
) -> None:
    answer = blocked("POST", "jobs", blocked.command("true", **body))
    assert (answer.status, answer.error["code"]) == (422, "invalid_option")
    text = f"{answer.error['message']} {answer.error['hint'] or ''}"
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("99", 404, "There is no job 99."),
        ("1[3]", 404, "Job 1 is no array."),
        ("2[10]", 404, "It has the tasks 0-9."),
        ("2[x]", 422, "such as 12[3]"),
        ("seven", 422, "'seven' is no number of a job"),
    ],
)
def test_names_that_nothing_has(blocked: Any, name: str, status: int, words: str) -> None:
    blocked.submit("true", array="0-9")
    answer = blocked("GET", f"jobs/{name}")
    assert answer.status == status
    assert words in f"{answer.error['message']} {answer.error['hint'] or ''}"


def test_when_its_owner_wants_to_hear_of_it_is_kept(blocked: Any) -> None:
    job = blocked.submit("true", notify=["end", "fail", "end"])
    assert blocked.job(job["id"])["notify"] == ["end", "fail"]
