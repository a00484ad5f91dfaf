"""Jobs over REST, from submit to their end: a real service, scheduler, ledger and launcher."""

from __future__ import annotations

import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.service import replies
from jupyter_gpupool.service.replies import JobReply


def test_a_script_runs_and_leaves_its_log_exit_code_and_files(start: Any, tmp_path: Any) -> None:
    call = start()
    digest = call.upload(
        {
            "train.py": "import helper, os, sys\nprint('hello', sys.argv[1:], os.getcwd())\n"
            "open(os.environ['GPUPOOL_OUT_DIR'] + '/result.txt', 'w').write('42')\nsys.exit(helper.CODE)\n",
            "helper.py": "CODE = 3\n",
        }
    )
    assert call("HEAD", f"snapshots/{digest}").status == 200
    job = call(
        "POST",
        "jobs",
        call.command(kind="script", entry={"script": "train.py", "args": ["a b"]}, snapshot=digest)
        | {"workdir": str(tmp_path)},
    ).body
    assert (job["name"], job["state"], job["simulated"]) == ("train.py", "queued", True)
    part = call("GET", f"jobs/{job['id']}/logs?wait=10")
    assert part.body == f"hello ['a b'] {tmp_path}\n".encode()
    ended = call.wait(job["id"])
    assert (ended["state"], ended["exit_code"], ended["attempt"]) == ("failed", 3, 1)
    assert ended["outcome"] == "Finished with exit code 3."
    rest = call("GET", f"jobs/{job['id']}/logs?offset={part.headers['x-gpupool-offset']}")
    assert (rest.body, rest.headers["x-gpupool-ended"]) == (b"", "true")
    assert [file["name"] for file in call("GET", f"jobs/{job['id']}/artifacts").body["artifacts"]] == [
        "result.txt"
    ]
    assert call("GET", f"jobs/{job['id']}/artifacts/result.txt").body == b"42"
    assert call("GET", f"jobs/{job['id']}/artifacts/none").status == 404
    assert call("GET", f"jobs/{job['id']}/artifacts/..%2F1%2Flog").status == 404


def test_a_failure_is_diagnosed(start: Any) -> None:
    call = start()
    digest = call.upload({"a.py": "def f():\n    import nowhere\nf()\n"})
    job = call("POST", "jobs", call.command(kind="script", entry={"script": "a.py"}, snapshot=digest)).body
    diagnosis = call.wait(job["id"])["diagnosis"]
    assert (diagnosis["kind"], diagnosis["summary"]) == (
        "missing_module",
        "The job's Python has no module 'nowhere'.",
    )
    assert diagnosis["lines"][-1] == "ModuleNotFoundError: No module named 'nowhere'"


def test_one_after_the_other_and_why(start: Any) -> None:
    call = start("1x1x8GiB")
    first, second = call.submit("echo first; sleep 1"), call.submit("echo second")
    third = call.submit("sleep 1")
    call.wait(first["id"], "running")
    waiting = call.job(third["id"])["waiting"]
    assert waiting["position"] == 2
    assert waiting["expected_start"]
    assert waiting["message"]
    queue = call("GET", "queue").body
    assert [job["id"] for job in queue["waiting"]] == [second["id"], third["id"]]
    assert [job["id"] for job in queue["running"]] == [first["id"]]
    assert call.wait(second["id"])["state"] == "completed"
    assert call.log(second["id"]) == b"second\n"
    assert call.job(second["id"])["started_at"] >= call.job(first["id"])["ended_at"]


def test_a_job_may_submit_another(start: Any) -> None:
    call = start()
    argv = [sys.executable, "-m", "jupyter_gpupool.app", "submit", "--cpus", "1", "--", "echo", "next"]
    environment = call.BASIC | {"GPUPOOL_HOME": str(call.home.path), "GPUPOOL_SIMULATE": "1x2x8GiB"}
    first = call("POST", "jobs", call.command(entry={"argv": argv}, environment=environment)).body
    assert call.wait(first["id"])["state"] == "completed", call.log(first["id"])
    assert call.wait(first["id"] + 1)["state"] == "completed"
    assert call.log(first["id"] + 1) == b"next\n"


def test_who_waits_for_the_log_of_a_waiting_job_gets_its_beginning(start: Any) -> None:
    call = start("1x1x8GiB")
    first, second = call.submit("echo up; sleep 100"), call.submit("echo second")
    assert call.log(first["id"], wait=20) == b"up\n"
    with ThreadPoolExecutor() as aside:
        waiting = aside.submit(call, "GET", f"jobs/{second['id']}/logs?wait=20")
        call("POST", f"jobs/{first['id']}/cancel")
        part = waiting.result()
    assert (part.body, part.headers["x-gpupool-attempt"]) == (b"second\n", "1")


def test_cancel_waiting_and_running(start: Any) -> None:
    call = start("1x1x8GiB")
    runs, waits = call.submit("echo up; sleep 100"), call.submit("true")
    call.wait(runs["id"], "running")
    cancelled = call("POST", f"jobs/{waits['id']}/cancel").body
    assert (cancelled["state"], cancelled["attempt"]) == ("cancelled", 0)
    assert call("POST", f"jobs/{waits['id']}/cancel").body["state"] == "cancelled"
    assert call("POST", f"jobs/{runs['id']}/cancel").body["state"] in ("stopping", "cancelled")
    ended = call.wait(runs["id"])
    assert ended["state"] == "cancelled"
    assert ended["outcome"].startswith("Cancelled by ")


def test_a_job_cancelled_while_it_starts_ends(start: Any) -> None:
    call = start()
    job = call.submit("sleep 100")
    call("POST", f"jobs/{job['id']}/cancel")
    assert call.wait(job["id"])["state"] == "cancelled"


def test_finishing_in_the_grace_is_completed(start: Any) -> None:
    call = start()
    job = call.submit("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done", grace="20s")
    call.log(job["id"], wait=10)
    call("POST", f"jobs/{job['id']}/cancel")
    assert call.wait(job["id"])["state"] == "completed"
    assert b"saved" in call.log(job["id"])


def test_the_time_limit(start: Any) -> None:
    call = start()
    job = call.submit("trap '' TERM; while :; do sleep 0.05; done", time="2s", grace="1s")
    ended = call.wait(job["id"])
    assert (ended["state"], ended["outcome"]) == ("timed_out", "Stopped at its time limit of 2s.")


def test_hold_release_requeue(start: Any) -> None:
    call = start("1x1x8GiB")
    first = call.submit("echo up; sleep 100")
    second = call.submit("true")
    held = call("POST", f"jobs/{second['id']}/hold").body
    assert (held["state"], held["waiting"]["reason"]) == ("held", "Held")
    assert f"release {second['id']}" in held["waiting"]["clears"]
    call.wait(first["id"], "running")
    call("POST", f"jobs/{first['id']}/requeue")
    again = call.wait(first["id"], "running")
    while again["attempt"] < 2:
        again = call.wait(first["id"], "running")
    assert again["reason"].startswith("Requeued by ")
    assert again["submitted_at"] == first["submitted_at"]
    assert call.job(second["id"])["state"] == "held"
    call("POST", f"jobs/{first['id']}/cancel")
    call("POST", f"jobs/{second['id']}/release")
    assert call.wait(second["id"])["state"] == "completed"


@pytest.mark.parametrize("verb", ["hold", "release", "requeue", "cancel"])
def test_what_the_state_does_not_allow(start: Any, verb: str) -> None:
    call = start()
    job = call.submit("true")
    call.wait(job["id"])
    answer = call("POST", f"jobs/{job['id']}/{verb}")
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert "completed" in answer.error["message"]


def test_the_same_key_is_the_same_job(start: Any) -> None:
    call = start("1x1x8GiB")
    body = call.command("sleep 100")
    first = call("POST", "jobs", body, Idempotency_Key="k")
    second = call("POST", "jobs", body, Idempotency_Key="k")
    other = call("POST", "jobs", body, Idempotency_Key="l")
    assert first.body["id"] == second.body["id"] != other.body["id"]
    assert len(call("GET", "jobs").body["jobs"]) == 2


def test_a_dry_run_says_when_and_changes_nothing(start: Any) -> None:
    call = start("1x1x8GiB")
    now = call("POST", "jobs?dry_run=true", call.command("true"))
    assert now.status == 200
    assert now.body["message"] == "It would start now."
    assert now.body["placement"]["gpus"][0]["uuid"] == "SIM-node1-0"
    job = call.submit("sleep 100")
    call.wait(job["id"], "running")
    later = call("POST", "jobs?dry_run=true", call.command("true")).body
    assert later["would_start"] == call.job(job["id"])["expires_at"]
    assert later["reason"]
    assert {other["priority"] for other in later["alternatives"]} == {"low", "high"}
    assert len(call("GET", "jobs").body["jobs"]) == 1


def test_a_dry_run_needs_no_code(start: Any) -> None:
    call = start("1x1x8GiB")
    body = call.command(kind="script", entry={"script": "train.py"}, snapshot="0" * 64)
    assert call("POST", "jobs?dry_run=true", body).body["message"] == "It would start now."
    assert call("POST", "jobs", body).error["code"] == "snapshot_missing"


def test_the_list_is_by_state_and_newest_first(start: Any) -> None:
    call = start("1x1x8GiB")
    ids = [call.submit("sleep 100")["id"] for _ in range(3)]
    call.wait(ids[0], "running")
    listed = call("GET", "jobs?state=queued,held").body["jobs"]
    assert [job["id"] for job in listed] == [ids[2], ids[1]]
    assert [job["id"] for job in call("GET", "jobs?limit=1").body["jobs"]] == [ids[2]]
    refused = call("GET", "jobs?state=quued")
    assert (refused.status, refused.error["hint"]) == (422, "Did you mean queued?")


def test_progress_is_shown_and_told(start: Any) -> None:
    call = start()
    line = '{"t": 1800000000, "fraction": 0.5, "values": {"loss": 0.1}}'
    job = call.submit(
        f"echo '{line}' >> $GPUPOOL_JOB_DIR/progress.jsonl; echo '{{bad' >> $GPUPOOL_JOB_DIR/progress.jsonl"
    )
    assert call.wait(job["id"])["progress"] == {
        "fraction": 0.5,
        "values": {"loss": 0.1},
        "at": "2027-01-15T08:00:00Z",
    }


def test_a_program_that_is_not_there(start: Any) -> None:
    call = start()
    job = call("POST", "jobs", call.command() | {"entry": {"argv": ["/no/such/program"]}}).body
    ended = call.wait(job["id"])
    assert ended["state"] == "failed"
    assert "/no/such/program" in ended["outcome"]
    assert ended["diagnosis"]["kind"] == "not_started"


def test_a_snapshot_must_have_been_sent(start: Any) -> None:
    call = start()
    answer = call("POST", "jobs", call.command("true", snapshot="0" * 64))
    assert (answer.status, answer.error["code"]) == (409, "snapshot_missing")


def test_no_more_jobs_at_once_than_the_host_has_cores(start: Any) -> None:
    cores = len(os.sched_getaffinity(0))
    call = start(f"1x{cores + 2}x8GiB")
    ids = [call.submit("sleep 100")["id"] for _ in range(cores + 1)]
    for id in ids[:cores]:
        call.wait(id, "running")
    waiting = call.job(ids[cores])["waiting"]
    assert waiting["reason"] == "Resources"
    assert socket.gethostname() in waiting["message"]
    assert call("POST", "leases", {"gpu_memory": "1GiB"}).status == 201


def test_replies_have_the_promised_keys(start: Any) -> None:
    call = start()
    job = call.submit("true")
    assert set(job) == set(JobReply.__annotations__)
    assert set(call("GET", "whoami").body) == set(replies.WhoamiReply.__annotations__)
    assert set(call("GET", "pool").body) == set(replies.PoolReply.__annotations__)
    assert set(call("GET", "quota").body) == set(replies.QuotaReply.__annotations__)


def test_what_a_job_finds_around_it(start: Any) -> None:
    call = start()
    job = call.submit("env", environment=call.BASIC | {"MINE": "1", "CUDA_VISIBLE_DEVICES": "7"})
    call.wait(job["id"])
    found = dict(line.partition("=")[::2] for line in call.log(job["id"]).decode().splitlines())
    assert found["MINE"] == "1"
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert found["GPUPOOL_GPUS"].startswith("SIM-node1-")
    assert found["GPUPOOL_JOB_ID"] == str(job["id"])
    assert found["GPUPOOL_CHECKPOINT_DIR"] == f"{job['folder']}/checkpoint"
    assert found["PYTHONPATH"].endswith("/portable")
    assert found["WANDB_RUN_ID"].endswith(f"-{job['id']}")


def test_events_tell_each_state(start: Any) -> None:
    call = start()
    job = call.submit("true")
    call.wait(job["id"])
    with Connection(call.home.url()).stream("events", {"Last-Event-ID": "1"}) as stream:
        lines: list[str] = []
        for line in stream.lines():
            lines.append(line)
            if '"completed"' in line:
                break
    told = [json.loads(line[6:]) for line in lines if line.startswith("data:")]
    assert [event["state"] for event in told if event.get("job")] == [
        "queued",
        "starting",
        "running",
        "completed",
    ]
    assert "event: reset" in lines
