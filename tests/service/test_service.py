"""The service as a whole: its files, its log, the report, and ending by itself."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home
from jupyter_gpupool.service import core, housekeeping, main
from jupyter_gpupool.service.config import ServiceConfig
from tests.service.conftest import serving


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_reach_or_read_it(start: Any) -> None:
    call = start()
    call.wait(call.submit("true")["id"])
    home = call.home
    assert mode(home.service_socket) == 0o600
    assert mode(home.path) == 0o700
    assert mode(home.path / "jobs" / "1") == 0o700
    assert mode(home.path / "jobs" / "1" / "out") == 0o700


def test_its_record_says_who_serves(start: Any) -> None:
    call = start("1x2x8GiB")
    record = json.loads(call.home.service_record.read_text())
    assert set(record) == {"pid", "version", "pool", "started", "python", "hub", "parent"}
    assert (record["pid"], record["pool"], record["python"]) == (os.getpid(), "1x2x8GiB", sys.executable)
    assert call("GET", "whoami").body["pool"] == "1x2x8GiB"


def test_report_metrics_and_health(start: Any) -> None:
    call = start("1x2x8GiB")
    call.wait(call.submit("sleep 1")["id"])
    report = call("GET", "report?days=2").body
    assert sum(day["submitted"] for day in report["days"]) == 1
    assert sum(day["ended"].get("completed", 0) for day in report["days"]) == 1
    assert report["use"][0]["group"] == "everyone"
    metrics = call("GET", "/services/gpupool/metrics").body.decode()
    assert 'gpupool_jobs{state="completed"} 1.0' in metrics
    assert 'gpupool_group_quota_gpus{group="everyone"} 2.0' in metrics
    names = {line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if not line.startswith("#")}
    assert all(name.startswith("gpupool_") for name in names)
    assert call("GET", "/services/gpupool/health").body["status"] == "ok"


def test_the_pool_shows_who_is_on_a_card(start: Any) -> None:
    call = start("2x1x8GiB")
    job = call.submit("sleep 100")
    call.wait(job["id"], "running")
    lease = call("POST", "leases", {"gpu_memory": "2GiB"}).body
    cards = [gpu for node in call("GET", "pool").body["nodes"] for gpu in node["gpus"]]
    by_job = [use["job"] for card in cards for use in card["leases"]]
    assert sorted(by_job, key=str) == [job["id"], None]
    assert sorted(card["free_mib"] for card in cards) == [0, 6144]
    assert lease["state"] == "held"


def test_alone_and_idle_it_ends_with_its_launcher(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    config = ServiceConfig(home, "1x1x8GiB", self_started=True, idle_exit_s=0.4)
    asyncio.run(asyncio.wait_for(main.run(config), 20))
    assert not home.service_socket.exists()
    assert not (home.run / "launcher.sock").exists()


def test_with_work_it_stays(start: Any) -> None:
    call = start("1x1x8GiB", self_started=True, idle_exit_s=0.4)
    job = call.submit("sleep 1.5; echo done")
    assert call.wait(job["id"])["state"] == "completed"


def test_in_the_background_it_answers_when_the_call_returns(home: Home) -> None:
    environment = {**os.environ, "GPUPOOL_HOME": str(home.path), "GPUPOOL_SIMULATE": "1x1x8GiB"}
    command = [sys.executable, "-m", "jupyter_gpupool.app", "serve", "--background"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(home.service_record.read_text())
    assert home.service_socket.exists()
    assert os.getsid(record["pid"]) != os.getsid(0)
    subprocess.run(
        [*command[:3], "stop", "--jobs", "end"], env=environment, capture_output=True, timeout=60, check=True
    )
    assert not home.service_socket.exists()


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GPUPOOL_SIMULATE": "4x8"}, "4x8"),
        ({"GPUPOOL_SIMULATE": "0x1x8GiB"}, "no card"),
    ],
)
def test_what_keeps_it_from_serving_is_one_sentence(
    home: Home, environment: dict[str, str], words: str
) -> None:
    for more in ([], ["--background"]):
        done = subprocess.run(
            [sys.executable, "-m", "jupyter_gpupool.app", "serve", "--allow-root", *more],
            env={**os.environ, "GPUPOOL_HOME": str(home.path), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_old_jobs_go_with_their_folders(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "TIDY_S", 0.05)
    policy = (
        "partitions: {all: {gpus: ['*:*'], for: [job]}}\ngroups: {team: {quota: {gpus: 1}}}\n"
        "default_group: team\nstorage: {retention: 1s}\n"
    )
    present = [time.time()]
    call = start("1x1x8GiB", policy, parts={"clock": lambda: present[0]})
    job = call.submit("true")
    call.wait(job["id"])
    present[0] += 2 * 86400  # it is kept until what its day came to is written down
    folder = Path(job["folder"])
    give_up = time.monotonic() + 20
    while call("GET", f"jobs/{job['id']}").status != 404 or folder.exists():
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert call("GET", "report").body["total"]["ended"] == {"completed": 1}


def test_a_pool_that_ends_with_its_jobs_waits_for_none_of_them_long(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "END_GRACE_S", 0)
    with serving(home) as start:
        call = start()
        job = call.submit("trap '' TERM; echo deaf; while :; do sleep 1; done", grace="2m")
        assert call.log(job["id"], wait=10) == b"deaf\n"
        pid = json.loads((home.path / "jobs" / str(job["id"]) / "1" / "runner.json").read_text())["pid"]
    assert not Path(f"/proc/{pid}").exists()
