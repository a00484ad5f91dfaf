"""Replies as text: every line is compared, with the clock and the zone given."""

from __future__ import annotations

from datetime import UTC

import pytest

from jupyter_gpupool.client import render
from jupyter_gpupool.client.text import Clock, seconds_of

NOW = "2026-10-20T12:00:00Z"  # a Tuesday
CLOCK = Clock(seconds_of(NOW), UTC)

REQUEST = {"gpus": 1, "gpu_mib": 0, "gpu_types": [], "cpus_milli": 6000, "memory_mib": 61440}
PLACEMENT = {
    "nodes": ["node3"],
    "gpus": [{"uuid": "SIM-1", "mib": 32768, "index": 3, "node": "node3"}],
    "mode": "whole",
    "isolation": "hard",
}
WAITING = {
    "reason": "Priority",
    "message": "2 jobs are before this one.",
    "clears": "It starts when they have started.",
    "position": 3,
    "expected_start": "2026-10-20T14:32:00Z",
    "kind": "estimate",
}


def job(number, state, **changes):
    times = ("started_at", "ended_at", "expires_at")
    fate = ("exit_code", "signal", "outcome", "reason", "waiting", "placement", "progress", "diagnosis")
    nothing = dict.fromkeys(("partition", "window", *times, *fate))
    return {
        **nothing,
        "id": number,
        "name": "train.py",
        "kind": "script",
        "state": state,
        "user": "ada",
        "group": "vision",
        "priority": "normal",
        "request": REQUEST,
        "time_s": 28800,
        "grace_s": 120,
        "resumable": False,
        "submitted_at": "2026-10-20T11:30:00Z",
        "attempt": 1,
        "folder": "/jobs/1",
        "out": "/jobs/1/out",
        "log": "/jobs/1/1/log",
        "workdir": "/work",
        "warnings": [],
        "simulated": False,
        **changes,
    }


QUEUED = job(12, "queued", attempt=0, waiting=WAITING)
RUNNING = job(
    11,
    "running",
    attempt=2,
    started_at="2026-10-20T11:40:00Z",
    expires_at="2026-10-20T19:40:00Z",
    placement=PLACEMENT,
    progress={"fraction": 0.4, "values": {"loss": 0.31234, "epoch": 3}, "at": NOW},
)
FAILED = job(
    10,
    "failed",
    outcome="Finished with exit code 1.",
    exit_code=1,
    ended_at="2026-10-19T22:00:00Z",
    diagnosis={
        "kind": "exception",
        "summary": "ValueError: no data",
        "hint": None,
        "lines": ["Traceback", "  x"],
    },
)
DONE = job(
    9,
    "completed",
    outcome="Finished with exit code 0.",
    request={**REQUEST, "gpus": 0, "gpu_mib": 4096},
    simulated=True,
)
QUOTA = {
    "user": "ada",
    "groups": [
        {
            "name": "vision",
            "quota": {"gpus_milli": 6000, "cpus_milli": 40000, "memory_mib": 524288},
            "used": {"gpus_milli": 3125, "cpus_milli": 12000, "memory_mib": 102400},
            "user": {
                "limits": {"gpus_milli": 2000, "sessions": 2, "running_jobs": 4, "job_time": 259200},
                "used": {"gpus_milli": 1125, "sessions": 1, "running_jobs": 1, "queued_jobs": 2},
            },
            "over_since": None,
        }
    ],
}


JOBS = """
ID  NAME      STATE      GROUP   GPU             SUBMITTED  STANDING
12  train.py  queued     vision  1 GPU           11:30      2 jobs are before this one; starts about 14:32 (in
                                                            2 h 32 min, estimate)
11  train.py  running    vision  1 GPU           11:30      on node3: GPU 3, 40 %, loss 0.3123, epoch 3, ends
                                                            by 19:40
10  train.py  failed     vision  1 GPU           11:30      Finished with exit code 1: ValueError: no data
 9  train.py  completed  vision  4 GiB of a GPU  11:30      Finished with exit code 0

Simulated pool: jobs really run, the cards are only counted.
"""


def test_jobs():
    assert render.jobs([QUEUED, RUNNING, FAILED, DONE], CLOCK) == JOBS.strip().splitlines()
    assert render.jobs([], CLOCK) == ["You have no jobs."]
    long = render.jobs([{**RUNNING, "name": "x" * 200}], CLOCK)[1]
    assert f"{'x' * 39}…  running" in long


QUEUE = """
1 running, 1 waiting.

   ID  USER  GROUP   PRIORITY  GPU    LIMIT  STARTS                  WAITS FOR
3  12  ada   vision  normal    1 GPU    8 h  about 14:32 (estimate)  2 jobs are before this one

ID  GROUP   PRIORITY  GPU    SINCE  ENDS BY  ON
11  vision  normal    1 GPU  11:40  19:40    node3: GPU 3
"""


def test_the_queue():
    stranger = {**RUNNING, "user": None, "name": None}
    assert render.queue({"waiting": [QUEUED], "running": [stranger]}, CLOCK) == QUEUE.strip().splitlines()
    assert render.queue({"waiting": [], "running": []}, CLOCK) == ["0 running, 0 waiting."]


def test_one_job():
    assert render.job({**RUNNING, "warnings": ["Slow."], "simulated": True}, CLOCK) == [
        "Job 11 train.py (script, simulated cards)",
        "  state       running (run 2)",
        "  standing    on node3: GPU 3, 40 %, loss 0.3123, epoch 3, ends by 19:40",
        "  user        ada (vision)",
        "  priority    normal",
        "  asks for    1 GPU, 6 cores, 60 GiB of host memory",
        "  time limit  8 h",
        "  runs on     node3: GPU 3",
        "  sharing     whole, hard isolation",
        "  submitted   11:30 (30 min ago)",
        "  started     11:40 (20 min ago)",
        "  folder      /work",
        "  output      /jobs/1/out",
        "  log         /jobs/1/1/log",
        "  Note: Slow.",
    ]


def test_why_a_job_waits():
    assert render.why(QUEUED, CLOCK) == [
        "Job 12 is queued.",
        "Priority: 2 jobs are before this one.",
        "It starts when they have started.",
        "Its place in the queue is 3.",
        "Expected start: about 14:32 (in 2 h 32 min, estimate).",
    ]
    promised = job(
        12, "queued", waiting={**WAITING, "kind": "promise", "expected_start": "2026-10-20T12:12:00Z"}
    )
    assert render.why(promised, CLOCK)[-1] == "Expected start: 12:12 (in 12 min, promise)."
    late = job(12, "queued", waiting={**WAITING, "expected_start": "2026-10-20T11:59:00Z"})
    assert render.why(late, CLOCK)[-1] == "Expected start: any moment."
    held = job(12, "held", waiting={**WAITING, "position": None, "expected_start": None, "clears": ""})
    assert render.why(held, CLOCK)[-1] == "No start can be expected yet."
    by_hand = {"reason": "Held", "message": "Held: by ada."}
    held = job(12, "held", waiting={**WAITING, **by_hand, "position": None, "expected_start": None})
    assert render.why(held, CLOCK)[1] == "Held: by ada."


def test_when_and_for_whom_a_job_made_room():
    for_others = "Stopped for job 12 of the group vision, which takes back what its group is owed."
    back = "Stopped because the lent cards of development are handed back."
    stops = [
        {"asked_at": "2026-10-20T08:02:00Z", "message": for_others, "cause": "reclaim"},
        {"asked_at": "2026-10-20T11:58:00Z", "message": back, "cause": "hand_back"},
    ]
    leaves = job(9, "stopping", expires_at="2026-10-20T12:02:00Z", reason=back, stops=stops)
    assert render.why(leaves, CLOCK)[:2] == ["Job 9 is stopping.", "Stopping, ends by 12:02."]
    assert render.why(leaves, CLOCK)[2:] == [f"08:02: {for_others}", f"11:58: {back}"]


def test_why_a_job_failed():
    assert render.why(FAILED, CLOCK) == [
        "Job 10 has failed.",
        "Finished with exit code 1.",
        "ValueError: no data.",
        "  | Traceback",
        "  |   x",
        "Its log: /jobs/1/1/log",
    ]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("completed", "Job 1 has completed."),
        ("cancelled", "Job 1 was cancelled."),
        ("timed_out", "Job 1 has timed out."),
        ("running", "Job 1 is running."),
    ],
)
def test_why_begins_with_the_fate(state, shown):
    same = {"reason": "It was so.", "outcome": "It was so."}
    lines = render.why(job(1, state, log=None, simulated=True, **same), CLOCK)
    assert lines[0] == shown
    assert lines.count("It was so.") == 1
    assert lines[-1] == "Simulated pool: jobs really run, the cards are only counted."


def test_what_a_dry_run_says():
    alternatives = [
        {"priority": "high", "window": None, "expected_start": NOW},
        {"priority": "normal", "window": "night", "expected_start": "2026-10-20T20:00:00Z"},
        {"priority": "low", "window": None, "expected_start": None},
    ]
    reply = {
        "would_start": NOW,
        "placement": PLACEMENT,
        "reason": None,
        "message": "",
        "alternatives": alternatives,
    }
    assert render.dry_run(reply, CLOCK) == [
        "Nothing was submitted.",
        "It would start now on node3: GPU 3.",
        "",
        "PRIORITY  WINDOW    WOULD START",
        "high      any time  now",
        "normal    night     20:00 (in 8 h)",
        "low       any time  not foreseeable",
    ]
    waits = {
        "would_start": None,
        "placement": None,
        "reason": "GroupQuota",
        "message": "vision uses 6 of 6 GPUs",
    }
    assert render.dry_run(waits, CLOCK) == ["Nothing was submitted.", "GroupQuota: Vision uses 6 of 6 GPUs."]


def test_quota():
    assert render.quota(QUOTA, CLOCK) == [
        "Group vision:",
        "RESOURCE       GROUP               YOU",
        "GPUs           3.125 of 6          1.125 of 2",
        "CPU cores      12 of 40",
        "host memory    100 GiB of 512 GiB",
        "sessions                           1 of 2",
        "running jobs                       1 of 4",
        "queued jobs                        2",
        "time of a job                      at most 3 d",
    ]
    over = {**QUOTA["groups"][0], "over_since": "2026-10-18T10:00:00Z"}
    assert render.quota({"user": "ada", "groups": [over]}, CLOCK)[-1].startswith("Over quota since Sun 10:00")
    assert render.quota({"user": "bob", "groups": []}, CLOCK) == [
        "bob is in no group of this pool, so only CPUs can be used."
    ]


def test_the_overview():
    whoami = {"user": "ada", "groups": [{"name": "vision"}], "pool": "4x8x32GiB", "simulated": True}
    others = {**QUEUED, "user": "bob"}
    assert render.overview(whoami, QUOTA, {"waiting": [others], "running": []}, CLOCK) == [
        "You are ada (vision), pool 4x8x32GiB.",
        "vision uses 3.125 of 6 GPUs, 1.125 of them yours.",
        "0 running, 1 waiting.",
        "Simulated pool: jobs really run, the cards are only counted.",
    ]
    mine = render.overview(whoami, QUOTA, {"waiting": [QUEUED], "running": []}, CLOCK)
    assert mine[3] == ""
    assert mine[5].startswith("12  train.py  queued")


def card(index, **changes):
    return {
        "uuid": f"SIM-{index}",
        "index": index,
        "model": "Simulated",
        "memory_mib": 32768,
        "partition": "development",
        "free_mib": 28672,
        "leases": [],
        "strangers": [],
        "available": True,
        "because": "",
        **changes,
    }


def test_the_cards():
    lease = {"lease": 1, "kind": "job", "user": "ada", "group": "vision", "mib": 4096, "job": 7}
    hidden = {**lease, "user": None, "job": None}
    cards = [
        card(0, leases=[lease, hidden]),
        card(1, strangers=[{"pid": 44, "mib": 300, "user": "bob", "command": "x"}]),
        card(2, available=False, because="the card was lost", free_mib=None),
        card(3),
    ]
    node = {"name": "node1", "cpus_milli": 48000, "memory_mib": 1, "available": True, "gpus": cards}
    partition = {"name": "development", "for": ["session", "job"], "gpus": 16, "slices": ["1/8", "1"]}
    reply = {
        "simulated": True,
        "describe": "1 node of 4 cards",
        "nodes": [node, {**node, "name": "node2", "available": False, "because": "new fans", "gpus": []}],
        "partitions": [partition],
        "inactive": ["lend"],
        "policy_error": "policy.yaml:3: …",
    }
    assert render.pool(reply, CLOCK) == [
        "1 node of 4 cards.",
        "Simulated pool: jobs really run, the cards are only counted.",
        "",
        "NODE   GPU  MODEL      MEMORY    FREE  PARTITION    USED BY",
        "node1    0  Simulated  32 GiB  28 GiB  development  ada 4 GiB (job 7), vision 4 GiB",
        "node1    1  Simulated  32 GiB  28 GiB  development  pid 44 300 MiB (no lease)",
        "node1    2  Simulated  32 GiB          development  not available: the card was lost",
        "node1    3  Simulated  32 GiB  28 GiB  development  -",
        "",
        "node2 takes no new work: New fans.",
        "",
        "PARTITION    FOR             GPUS  SLICES",
        "development  sessions, jobs    16  1/8; 1",
        "",
        "The policy file has an error, and the last good one holds: policy.yaml:3: …",
        "",
        "Policy: lend",
    ]


def test_leases():
    lease = {
        "id": 4,
        "state": "held",
        "group": "vision",
        "request": {**REQUEST, "gpus": 0, "gpu_mib": 4096},
        "expires_at": "2026-10-20T20:00:00Z",
        "placement": {**PLACEMENT, "mode": "timeslice", "isolation": "soft"},
        "waiting": None,
        "simulated": True,
    }
    assert render.lease_held(lease, CLOCK) == [
        "Lease 4 (simulated cards): 4 GiB of a GPU on node3: GPU 3 until 20:00.",
        "Sharing: timeslice, soft isolation.",
    ]
    assert render.lease_waits({"waiting": WAITING}, CLOCK) == (
        "2 jobs are before this one. Expected about 14:32 (in 2 h 32 min, estimate)."
    )
    assert render.lease_waits({}, CLOCK) == "It waits for its turn."


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        ({"gpus": 2, "gpu_mib": 0, "gpu_types": ["a100", "h100"]}, "2 GPUs (a100 or h100)"),
        ({"gpus": 0, "gpu_mib": 8192, "gpu_types": []}, "8 GiB of a GPU"),
        ({"gpus": 0, "gpu_mib": 0}, "CPU only"),
    ],
)
def test_requests(request_, shown):
    assert render.request_text(request_) == shown


@pytest.mark.parametrize(
    ("state", "changes", "shown"),
    [
        ("starting", {"placement": PLACEMENT}, "starting, on node3: GPU 3"),
        (
            "failed",
            {
                "outcome": "The job's runner was killed.",
                "diagnosis": {"kind": "runner_killed", "summary": "The job's runner was killed."},
            },
            "The job's runner was killed",
        ),
        (
            "failed",
            {
                "outcome": "Ended by signal 9 (SIGKILL).",
                "diagnosis": {"kind": "signal", "summary": "The job was ended by signal 9 (SIGKILL)."},
            },
            "Ended by signal 9 (SIGKILL)",
        ),
        ("running", {}, "running"),
        ("stopping", {}, "stopping"),
        ("queued", {"reason": "The machine was restarted."}, "The machine was restarted"),
        ("queued", {}, "queued"),
        ("timed_out", {}, "timed out"),
        ("cancelled", {"outcome": "Cancelled while it ran."}, "Cancelled while it ran"),
        (
            "failed",
            {
                "outcome": "Finished with exit code 3.",
                "diagnosis": {"kind": "exit_code", "summary": "Exit code 3."},
            },
            "Finished with exit code 3",
        ),
    ],
)
def test_standing(state, changes, shown):
    assert render.standing(job(1, state, **changes), CLOCK) == shown


def test_standing_beside_the_state_does_not_repeat_it():
    starting = job(1, "starting", placement=PLACEMENT)
    assert render.standing(starting, CLOCK, state_shown=True) == "on node3: GPU 3"
    assert render.standing(job(1, "starting"), CLOCK, state_shown=True) == "starting"


def test_why_tells_the_exit_code_once():
    diagnosis = {"kind": "exit_code", "summary": "The program finished with exit code 3.", "lines": ["end"]}
    found = job(1, "failed", outcome="Finished with exit code 3.", diagnosis=diagnosis, log=None)
    assert render.why(found, CLOCK) == ["Job 1 has failed.", "Finished with exit code 3.", "  | end"]
