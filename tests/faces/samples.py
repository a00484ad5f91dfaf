"""Replies of the service, as its documents describe them, for tests of what faces make of them."""

from __future__ import annotations

from typing import Any

WAITING = {
    "reason": "Priority",
    "message": "3 jobs of higher rank are before it.",
    "clears": "When they have started.",
    "position": 4,
    "expected_start": "2030-01-01T00:00:00Z",
    "kind": "estimate",
}
PLACEMENT = {
    "nodes": ["node1"],
    "gpus": [{"uuid": "SIM-node1-0", "mib": 8192, "index": 0, "node": "node1"}],
    "mode": "simulated",
    "isolation": "soft",
}


def job(**changed: Any) -> dict[str, Any]:
    """Return a queued job with some values changed."""
    return {
        "id": 7,
        "name": "train.py",
        "kind": "script",
        "state": "queued",
        "user": "ada",
        "group": "vision",
        "priority": "normal",
        "partition": None,
        "request": {"gpus": 1, "gpu_mib": 0, "gpu_types": [], "cpus_milli": 6000, "memory_mib": 61440},
        "time_s": 3600,
        "grace_s": 120,
        "window": None,
        "resumable": False,
        "submitted_at": "2026-11-30T10:00:00Z",
        "started_at": None,
        "ended_at": None,
        "expires_at": None,
        "attempt": 0,
        "exit_code": None,
        "signal": None,
        "outcome": None,
        "reason": None,
        "waiting": dict(WAITING),
        "placement": None,
        "progress": None,
        "diagnosis": None,
        "folder": "/pool/jobs/7",
        "out": "/pool/jobs/7/out",
        "log": "/pool/jobs/7/1/log",
        "workdir": "/home/ada",
        "warnings": [],
        "simulated": False,
        **changed,
    }


def running(**changed: Any) -> dict[str, Any]:
    """Return a running job."""
    progress = {"fraction": 0.25, "values": {"loss": 0.123456}, "at": "2026-11-30T10:01:00Z"}
    times = {"started_at": "2026-11-30T10:00:30Z", "expires_at": "2026-11-30T11:00:30Z", "attempt": 1}
    defaults = {"state": "running", "waiting": None, "placement": PLACEMENT, "progress": progress, **times}
    return job(**{**defaults, **changed})


def ended(state: str = "completed", **changed: Any) -> dict[str, Any]:
    """Return an ended job."""
    times = {"started_at": "2026-11-30T10:00:30Z", "ended_at": "2026-11-30T10:10:00Z", "attempt": 1}
    outcome = {"completed": "Finished with exit code 0.", "failed": "Finished with exit code 3."}.get(state)
    defaults = {"state": state, "waiting": None, "outcome": outcome, "exit_code": 0, **times}
    return job(**{**defaults, **changed})


def lease(**changed: Any) -> dict[str, Any]:
    """Return a held lease."""
    return {
        "id": 3,
        "state": "held",
        "user": "ada",
        "group": "vision",
        "name": "kernel",
        "pid": 4711,
        "request": {"gpus": 1, "gpu_mib": 0, "gpu_types": [], "cpus_milli": 6000, "memory_mib": 61440},
        "time_s": 3600,
        "submitted_at": "2026-11-30T10:00:00Z",
        "started_at": "2026-11-30T10:00:00Z",
        "ended_at": None,
        "expires_at": "2026-11-30T11:00:00Z",
        "waiting": None,
        "placement": PLACEMENT,
        "environment": {"CUDA_VISIBLE_DEVICES": "", "GPUPOOL_GPUS": "SIM-node1-0"},
        "reason": None,
        "simulated": True,
        **changed,
    }


WHOAMI = {
    "user": "ada",
    "groups": [{"name": "vision", "parent": "pool"}],
    "default_group": "vision",
    "admin": False,
    "simulated": True,
    "pool": "1x2x8GiB",
    "version": "0.1.0",
}
QUOTA = {
    "user": "ada",
    "groups": [
        {
            "name": "vision",
            "quota": {"gpus_milli": 6000, "cpus_milli": 40000, "memory_mib": 524288},
            "used": {"gpus_milli": 1125, "cpus_milli": 7000, "memory_mib": 1024},
            "user": {
                "limits": {"gpus_milli": 2000, "running_jobs": 4},
                "used": {"gpus_milli": 1000, "running_jobs": 1, "queued_jobs": 2, "sessions": 0},
            },
            "limit": None,
            "over_since": "2026-11-30T10:00:00Z",
            "boosts": [],
            "budget": None,
            "lent": [
                {"group": "speech", "gpus_milli": 2000, "until": "2026-11-30T18:00:00Z", "on_demand": True}
            ],
            "borrowed": [],
        }
    ],
}
POOL = {
    "simulated": True,
    "describe": "Simulated pool 1x2x8GiB.",
    "nodes": [
        {
            "name": "node1",
            "cpus_milli": 12000,
            "memory_mib": 122880,
            "available": True,
            "gpus": [
                {
                    "uuid": "SIM-node1-0",
                    "index": 0,
                    "model": "Simulated 8GiB",
                    "memory_mib": 8192,
                    "partition": "pool",
                    "free_mib": 8192,
                    "leases": [
                        {"lease": 3, "kind": "job", "user": "ada", "group": "vision", "mib": 8192, "job": 7}
                    ],
                    "strangers": [{"pid": 99, "mib": None, "user": "bo", "command": "python"}],
                    "available": True,
                    "because": "",
                }
            ],
        }
    ],
    "partitions": [{"name": "pool", "for": ["session", "job"], "gpus": 1, "slices": ["1/8", "1 GPU"]}],
    "inactive": ["groups.vision.lend is not active yet."],
    "policy_error": None,
}
DRY_RUN = {
    "would_start": "2030-01-01T00:00:00Z",
    "placement": PLACEMENT,
    "reason": None,
    "message": "There is room.",
    "alternatives": [{"priority": "high", "window": None, "expected_start": None}],
}
USED = {
    "gpu_hours": 12.5,
    "charged_gpu_hours": 25.0,
    "measured_gpu_hours": 10.0,
    "utilisation": 0.25,
    "submitted": 3,
    "ended": {"completed": 2, "failed": 1},
    "wait_mean_s": 720,
    "wait_p95_s": 3600,
    "session_wait_p95_s": 4,
    "stops": 1,
    "sessions": 5,
    "idle_sessions": 2,
    "idle_hours": 3.5,
}
PER_CARD = {"touched_hours_per_card_day": 1.8, "held_hours_per_card_day": 1.5, "utilisation": 0.25}
REPORT = {
    "since": "2026-11-23T00:00:00Z",
    "until": "2026-11-30T00:00:00Z",
    "group": None,
    "user": None,
    "days": [{"date": "2026-11-29", **USED, **PER_CARD}],
    "use": [
        {"group": "vision", "user": "ada", **USED},
        {"group": "vision", "user": None, **USED, "utilisation": None, "ended": {}},
    ],
    "groups": [
        {
            "group": "vision",
            "quota_gpu_hours": 1008.0,
            "budget": {
                "gpu_hours": 2000.0,
                "spent_gpu_hours": 25.0,
                "left_gpu_hours": 1975.0,
                "until": "2026-12-01T00:00:00Z",
            },
            **USED,
        }
    ],
    "cards": [{"uuid": "SIM-node3-3", "node": "node3", "index": 3, **PER_CARD}],
    "total": {**USED, **PER_CARD},
    "gpu_hours": 12.5,
    "capacity_gpu_hours": 336.0,
    "simulated": False,
}
HOLDER = {
    "kind": "job",
    "id": 7,
    "name": "train.py",
    "user": "ada",
    "group": "vision",
    "priority": "high",
    "attempt": 2,
    "since": "2026-10-12T01:00:00Z",
    "until": "2026-10-12T05:00:00Z",
    "ended_because": "It was asked to leave for others (hand-back).",
    "mib": 32768,
    "gpu_milli": 1000,
}
HISTORY = {
    "at": "2026-10-12T03:00:00Z",
    "policy": {"name": "20261001T080000Z-0a1b2c3d.yaml", "since": "2026-10-01T08:00:00Z"},
    "cards": [
        {"uuid": "SIM-node3-3", "node": "node3", "index": 3, "partition": "training", "holders": [HOLDER]},
        {"uuid": "SIM-node3-4", "node": "node3", "index": 4, "partition": "training", "holders": []},
    ],
    "without_card": [{**HOLDER, "kind": "session", "id": 9, "attempt": 1, "until": None}],
    "known_since": "2026-10-01T00:00:00Z",
}

LOOKS = {
    "jobs": ("GET jobs", {"jobs": [running()]}, "train.py"),
    "queue": ("GET queue", {"waiting": [job()], "running": [running()]}, "higher rank"),
    "quota": ("GET quota", QUOTA, "1.125 of 6"),
    "gpus": ("GET pool", POOL, "Simulated 8GiB"),
    "show 7": ("GET jobs/7", running(), "loss 0.1235"),
    "why 7": ("GET jobs/7", job(), "higher rank"),
    "cancel 7": ("POST jobs/7/cancel", ended("cancelled"), "Job 7: cancelled"),
    "hold 7": ("POST jobs/7/hold", job(state="held"), "Job 7:"),
    "release 7": ("POST jobs/7/release", job(), "Job 7:"),
    "requeue 7": ("POST jobs/7/requeue", job(), "Job 7:"),
    "report": ("GET report", REPORT, "12.5"),
    "history": ("GET history", HISTORY, "20261001T080000Z-0a1b2c3d.yaml"),
}
"""Of each question: what the service is asked, what it answers, and a part of what is shown."""
