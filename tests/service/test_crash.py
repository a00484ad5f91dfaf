"""Whatever is killed, no job is lost, started twice, or reported with the wrong outcome."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest


def test_the_service_is_killed_and_the_job_goes_on(spawn: Any) -> None:
    service = spawn()
    call = service.call
    first = call.submit("echo one; while [ ! -e $GPUPOOL_OUT_DIR/go ]; do sleep 0.05; done; echo two; exit 4")
    second = call.submit("echo second")
    call.log(first["id"], wait=10)
    service.kill()
    folder = service.home.path / "jobs" / str(first["id"])
    (folder / "out" / "go").touch()
    while b"exit_code" not in (folder / "1" / "exit.json").read_bytes():  # it ends while nobody looks
        time.sleep(0.02)
    began = time.monotonic()
    service = spawn()
    ended = call.wait(first["id"])
    assert (ended["state"], ended["exit_code"], ended["attempt"]) == ("failed", 4, 1)
    assert call.log(first["id"]) == b"one\ntwo\n"
    assert call.wait(second["id"])["state"] == "completed"
    assert time.monotonic() - began < 30
    assert call.log(second["id"]) == b"second\n"


def test_a_running_job_is_adopted_and_can_be_cancelled(spawn: Any) -> None:
    service = spawn()
    job = service.call.submit("echo up; sleep 100")
    service.call.log(job["id"], wait=10)
    service.kill()
    service = spawn()
    found = service.call.job(job["id"])
    assert (found["state"], found["attempt"]) == ("running", 1)
    service.call("POST", f"jobs/{job['id']}/cancel")
    assert service.call.wait(job["id"])["state"] == "cancelled"


def test_a_graceful_stop_keeps_the_jobs(spawn: Any) -> None:
    service = spawn()
    job = service.call.submit("echo up; sleep 1; echo down")
    service.call.log(job["id"], wait=10)
    service.stop(keep_jobs=True)
    assert not service.home.service_socket.exists()
    assert not service.home.service_record.exists()
    service = spawn()
    assert service.call.wait(job["id"])["state"] == "completed"
    assert service.call.log(job["id"]) == b"up\ndown\n"


def test_a_new_service_waits_for_the_old_one_to_end(spawn: Any) -> None:
    old = spawn()
    job = old.call.submit("echo up; sleep 1; echo down")
    old.call.log(job["id"], wait=10)
    old.call("POST", "shutdown", {"keep_jobs": True})
    new = spawn()
    assert new.call.wait(job["id"])["state"] == "completed"
    assert old.process.wait(20) == 0
    assert new.home.service_socket.exists()


def test_sigterm_is_a_graceful_stop(spawn: Any) -> None:
    service = spawn()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(20) == 0
    assert not service.home.service_socket.exists()


@pytest.mark.parametrize("turn", range(3))
def test_killed_right_after_the_reply_the_job_still_runs_once(spawn: Any, turn: int) -> None:
    service = spawn()
    job = service.call.submit("echo x >> $GPUPOOL_OUT_DIR/marks; echo done")
    time.sleep(0.01 * turn)
    service.kill()
    service = spawn()
    assert service.call.wait(job["id"])["state"] == "completed"
    assert service.call("GET", f"jobs/{job['id']}/artifacts/marks").body == b"x\n"


def test_after_a_reboot_jobs_queue_again_with_the_reason(spawn: Any) -> None:
    service = spawn(GPUPOOL_BOOT_ID="boot-1")
    job = service.call.submit("echo run $GPUPOOL_ATTEMPT; [ $GPUPOOL_ATTEMPT = 2 ] || sleep 10")
    service.call.log(job["id"], wait=10)
    service.kill()
    time.sleep(0.1)
    service = spawn(GPUPOOL_BOOT_ID="boot-2")
    found = service.call.wait(job["id"])
    assert (found["state"], found["attempt"]) == ("completed", 2)
    assert service.call.log(job["id"]) == b"run 2\n"
    assert service.call.log(job["id"], attempt=1) == b"run 1\n"


def test_stop_with_its_jobs_leaves_no_process(spawn: Any) -> None:
    service = spawn()
    job = service.call.submit("echo $$ > $GPUPOOL_OUT_DIR/pid; echo up; sleep 100")
    waits = service.call.submit("true")
    service.call.log(job["id"], wait=10)
    pid = int((service.home.path / "jobs" / str(job["id"]) / "out" / "pid").read_text())
    service.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    service = spawn()
    assert service.call.job(job["id"])["state"] == "cancelled"
    assert service.call.job(waits["id"])["outcome"] == "The pool was stopped."


def test_a_second_service_is_refused_and_the_first_goes_on(spawn: Any) -> None:
    service = spawn()
    second = subprocess.run(
        [sys.executable, "-m", "jupyter_gpupool.app", "serve", "--allow-root"],
        env={**os.environ, "GPUPOOL_HOME": str(service.home.path), "GPUPOOL_SIMULATE": "1x1x8GiB"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 1
    last = second.stderr.strip().splitlines()[-1]
    assert last.startswith("jupyter gpupool serve: ")
    assert str(service.process.pid) in last
    assert service.call("GET", "whoami").status == 200
    assert service.home.service_record.exists()
