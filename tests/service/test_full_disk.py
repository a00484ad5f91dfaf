"""A full disk: the reply says so, nothing is lost, and all goes on when there is space again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.home import Home


@pytest.fixture
def home(tmp_path: Path, require: Callable[[str], None]) -> Iterator[Home]:
    """A home on a disk of four MiB."""
    disk = tmp_path / "d"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        require("a small tmpfs cannot be mounted")
    yield Home(disk)
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(home: Home) -> Path:
    ballast = home.path / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return ballast


def test_submits_and_uploads_say_so_and_nothing_changes(start: Any) -> None:
    call = start("1x1x8GiB")
    kept = call.submit("true")
    call.wait(kept["id"])
    ballast = fill(call.home)
    for _ in range(3):
        answer = call("POST", "jobs", call.command("true", environment={"A": "x" * 20_000}))
        assert (answer.status, answer.error["code"]) == (507, "disk_full")
        assert "\n" not in answer.error["message"]
        assert "nothing was changed" in answer.error["message"]
        assert answer.error["hint"] is None  # the message says it all
    upload = call("PUT", "snapshots/" + "0" * 64, b"x" * 200_000)
    assert (upload.status, upload.error["code"]) == (507, "disk_full")
    assert [job["id"] for job in call("GET", "jobs").body["jobs"]] == [kept["id"]]
    ballast.unlink()
    assert call.wait(call.submit("true")["id"])["state"] == "completed"


def test_a_job_that_ends_while_the_disk_is_full_is_recorded_afterwards(start: Any) -> None:
    call = start("1x1x8GiB")
    job = call.submit("echo up; sleep 100")
    waits = call.submit("true")
    call.log(job["id"], wait=10)
    ballast = fill(call.home)
    assert call("POST", f"jobs/{job['id']}/cancel").status in (200, 507)
    ballast.unlink()
    assert call.wait(job["id"])["state"] == "cancelled"
    assert call.wait(waits["id"])["state"] == "completed"


def test_a_service_that_finds_no_room_to_start_says_so(home: Home) -> None:
    (home.path / "h").mkdir(mode=0o700)
    fill(home)
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpupool.app", "serve", "--allow-root", "--simulate", "1x1x8GiB"],
        env={**os.environ, "GPUPOOL_HOME": str(home.path / "h")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("jupyter gpupool serve: ")
    assert done.stderr.endswith("No space left on device.\n")
    assert done.stderr.count("\n") == 1
