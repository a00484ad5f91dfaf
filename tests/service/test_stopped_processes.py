"""Real jobs make room for others: asked, saved, queued again, gone on where they were."""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.client.enable import make_portable
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.engines.local import engine
from jupyter_gpupool.service import controller, core
from tests.service.receivers import MailServer

ME = pwd.getpwuid(os.geteuid()).pw_name
OWED = f"""
partitions: {{all: {{gpus: ["*:*"], for: [job]}}}}
groups:
  vision: {{quota: {{gpus: 1}}, members: [{ME}]}}
  speech: {{quota: {{gpus: 1}}, members: [{ME}]}}
"""
FREE = """
partitions: {all: {gpus: ["*:*"], for: [job]}}
groups: {team: {quota: {gpus: 2}}}
default_group: team
storage: {min_free: 1MiB}
notify: {to: "{user}@example.org", admins: [ops@example.org]}
"""
LENT = """
timezone: UTC
calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}
partitions:
  development:
    gpus: ["node1:0"]
    for: [session]
    slices: [{share: 1/2}, {gpus: 1}]
    lend: {to: training, during: night}
  training: {gpus: ["node1:1"], for: [job]}
groups: {team: {quota: {gpus: 2}, user: {sessions: 2}}}
default_group: team
jobs: {grace: 1m}
"""
TRAIN = """
import os, pathlib, sys, time
import gpupool_job
saved = pathlib.Path(gpupool_job.checkpoint_dir()) / "step"
first = int(saved.read_text()) if saved.exists() else 0
print("from", first, os.environ["WANDB_RUN_ID"], os.environ["WANDB_RESUME"], flush=True)
step = first
while step < first + 5 or not first:
    step += 1
    time.sleep(0.02)
    if gpupool_job.should_stop():
        time.sleep(0.3)
        saved.write_text(str(step))
        raise SystemExit(143)
print("done", flush=True)
"""
SAVES = """
trap 'touch $GPUPOOL_CHECKPOINT_DIR/$GPUPOOL_ATTEMPT; exit 1' TERM
echo up
while :; do sleep 0.05; done
"""
SLOW = "trap 'sleep 1; exit 1' TERM; echo up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
FINISHES = "trap 'sleep 0.3; echo done; exit 0' TERM; echo up; while :; do sleep 0.05; done"
LEAVES_ONE = """
[ $GPUPOOL_ATTEMPT = 2 ] || setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' stubborn &
while :; do sleep 0.05; done
"""
SAID = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done"
KILLED_AT = """
import os, signal
from functools import wraps
from jupyter_gpupool import app
from {module} import {holder}

def kill(method):
    @wraps(method)
    {kind} fatal(self, *args, **named):
        if {before}:
            os.kill(os.getpid(), signal.SIGKILL)
        found = {wait} method(self, *args, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return found
    return fatal

{holder}.{method} = kill({holder}.{method})
app.main(["serve", "--allow-root"])
"""
Lingering = tuple[Any, int, int]
ENGINE, LEDGER = "jupyter_gpupool.engines.local.engine", "jupyter_gpupool.ledger.stops"
MOMENTS = {
    "between writing and asking": (ENGINE, "LocalEngine", "stop", True),
    "once it is asked": (ENGINE, "LocalEngine", "stop", False),
    "between the end and its record": (LEDGER, "Stops", "left", True),
    "once the end is written": (LEDGER, "Stops", "left", False),
}


class Clock:
    """The present, moved on at will."""

    ahead = 0.0
    stopped: float | None = None

    def __call__(self) -> float:
        return time.time() + self.ahead if self.stopped is None else self.stopped

    def set(self, *moment: int) -> None:
        self.ahead = datetime(*moment, tzinfo=UTC).timestamp() - time.time()

    def stop(self, *moment: int) -> None:
        """Let it be that moment until the end, however long the machine takes."""
        self.stopped = datetime(*moment, tzinfo=UTC).timestamp()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(controller, "TICK_S", 0.05)
    return Clock()


@pytest.fixture
def serve(start: Any, clock: Clock, home: Home) -> Callable[..., Any]:
    def begin(policy: str) -> Any:
        make_portable(home)
        return start("1x2x8GiB", policy, parts={"clock": clock})

    return begin


def killed_at(moment: str) -> tuple[str, str]:
    """Return a service that kills itself at a moment of a stop."""
    module, holder, method, before = MOMENTS[moment]
    kind, wait = ("async def", "await") if module == ENGINE else ("def", "")
    text = KILLED_AT.format(module=module, holder=holder, method=method, before=before, kind=kind, wait=wait)
    return "-c", text


def resumable(call: Any, shell: str, **more: Any) -> dict[str, Any]:
    job = call.submit(shell, **({"resumable": True, "time": "12h", "grace": "20s"} | more))
    call.log(job["id"], wait=20)
    return job


def reason(call: Any, id: int) -> str:
    """Return why a queued job waits, once a plan knows it."""
    give_up = time.monotonic() + 20
    while "being planned" in (found := call.wait(id, "queued")["waiting"])["message"]:
        assert time.monotonic() < give_up, found
        time.sleep(0.02)
    return str(found["reason"])


def test_a_shell_and_its_training_make_room_and_go_on_where_they_were(
    serve: Any, clock: Clock, tmp_path: Path
) -> None:
    call = serve(OWED)
    (tmp_path / "train.py").write_text(TRAIN)
    stays = resumable(call, "echo up; exec sleep 100", group="vision")
    clock.ahead += 1  # the youngest leaves first
    wrapper = f"cd {tmp_path}; bash -c 'python3 train.py & wait'"
    leaves = resumable(call, wrapper, group="vision")
    clock.ahead += 600  # both have run long enough to be asked
    owed = call.submit("echo mine", group="speech")
    assert call.wait(owed["id"])["state"] == "completed"
    back = call.job(leaves["id"])
    assert (back["state"], back["attempt"], back["submitted_at"]) == ("queued", 1, leaves["submitted_at"])
    assert call.job(stays["id"])["state"] == "running"
    (stop,) = back["stops"]
    assert (stop["cause"], stop["taker"]) == ("reclaim", owed["id"])
    assert (
        back["reason"]
        == stop["message"]
        == (f"Stopped for job {owed['id']} of the group speech, which takes back what its group is owed.")
    )
    assert reason(call, leaves["id"]) == "BackOff"
    clock.ahead += 60
    ended = call.wait(leaves["id"])
    assert (ended["state"], ended["attempt"]) == ("completed", 2)
    first, again = (
        call("GET", f"jobs/{leaves['id']}/logs?attempt={attempt}").body.decode().split() for attempt in (1, 2)
    )
    assert first[:2] == ["from", "0"]
    assert int(again[1]) > 0
    assert again[2:] == [first[2], "allow", "done"]


def test_who_does_not_listen_is_killed_at_the_end_of_the_grace_and_queued_again(
    serve: Any, clock: Clock
) -> None:
    call = serve(OWED)
    resumable(call, "echo up; exec sleep 100", group="vision")
    clock.ahead += 1
    deaf = resumable(call, DEAF, group="vision", grace="1s")
    clock.ahead += 600
    owed = call.submit("echo mine", group="speech")
    assert call.wait(owed["id"])["state"] == "completed"
    back = call.job(deaf["id"])
    assert (back["state"], len(back["stops"])) == ("queued", 1)


def test_a_session_gets_the_card_that_was_lent_and_in_the_morning_all_are_back(
    serve: Any, clock: Clock
) -> None:
    clock.set(2026, 10, 20, 22, 0)
    call = serve(LENT)
    resumable(call, SAVES)
    clock.ahead += 1
    lent = resumable(call, SAVES)
    assert call.job(lent["id"])["placement"]["gpus"][0]["uuid"] == "SIM-node1-0"
    asked = call("POST", "leases", {"gpu_memory": "8GiB"})
    assert (asked.status, asked.body["state"]) == (202, "requested")
    session = asked.body["id"]
    held = call("GET", f"leases/{session}?wait=20").body
    assert (held["state"], held["placement"]["gpus"][0]["uuid"]) == ("held", "SIM-node1-0")
    back = call.job(lent["id"])
    assert (back["state"], back["stops"][0]["cause"]) == ("queued", "session")
    call("DELETE", f"leases/{session}")
    clock.ahead += 60
    assert call.wait(lent["id"], "running")["attempt"] == 2
    call.log(lent["id"], wait=20)
    clock.stop(2026, 10, 21, 7, 59, 40)
    back = call.wait(lent["id"], "queued")
    assert [stop["cause"] for stop in back["stops"]] == ["session", "hand_back"]
    assert back["reason"] == "Stopped because the lent cards of development are handed back."
    assert datetime.fromisoformat(back["stops"][1]["leaves_by"]) <= datetime(2026, 10, 21, 8, tzinfo=UTC)


def test_who_finishes_within_the_grace_is_completed(serve: Any, clock: Clock) -> None:
    call = serve(OWED)
    resumable(call, "echo up; exec sleep 100", group="vision")
    clock.ahead += 1
    nearly = resumable(call, FINISHES, group="vision")
    clock.ahead += 600
    owed = call.submit("echo mine", group="speech")
    assert call.wait(owed["id"])["state"] == "completed"
    ended = call.job(nearly["id"])
    assert (ended["state"], ended["attempt"], ended["exit_code"]) == ("completed", 1, 0)


def test_nobody_is_asked_before_it_has_run_for_a_while(serve: Any, clock: Clock) -> None:
    call = serve(OWED)
    both = [resumable(call, SAVES, group="vision")["id"] for _ in range(2)]
    owed = call.submit("echo mine", group="speech")["id"]
    assert reason(call, owed) == "Reclaiming"
    clock.ahead += 300
    time.sleep(0.3)
    assert [call.job(id)["state"] for id in both] == ["running"] * 2
    clock.ahead += 300
    assert call.wait(owed)["state"] == "completed"
    assert sorted(call.job(id)["state"] for id in both) == ["queued", "running"]


def test_two_stops_that_bring_it_no_further_hold_it_and_its_owner_is_told(serve: Any, clock: Clock) -> None:
    call = serve(OWED)
    stays = resumable(call, "echo up; exec sleep 100", group="vision")["id"]
    clock.ahead += 1
    vain = resumable(call, "echo up; exec sleep 100", group="vision")["id"]
    for stops in (1, 2):
        clock.ahead += 600
        assert call.wait(call.submit("echo mine", group="speech")["id"])["state"] == "completed"
        found = call.wait(vain, "queued", "held")
        assert len(found["stops"]) == stops
        clock.ahead += 60 * stops
        if stops == 1:
            call.wait(vain, "running")
            call.log(vain, wait=20)
    assert found["state"] == "held"
    assert "stopped for others 2 times without getting further" in found["waiting"]["message"]
    assert call.job(stays)["state"] == "running"
    call("POST", f"jobs/{vain}/release")
    assert call.wait(vain, "running")["attempt"] == 3


def test_a_limit_that_comes_within_the_grace_is_the_end(serve: Any, clock: Clock) -> None:
    call = serve(OWED + "jobs: {min_run_time: 0s}\n")
    resumable(call, "echo up; exec sleep 100", group="vision")
    clock.ahead += 1
    ends = resumable(call, SAID, group="vision", time="4s", grace="2s")["id"]
    while b"asked" not in call.log(ends):
        time.sleep(0.02)
    owed = call.submit("echo mine", group="speech")["id"]
    ended = call.wait(ends)
    assert (ended["state"], ended["signal"], ended["attempt"]) == ("timed_out", 9, 1)
    assert call.wait(owed)["state"] == "completed"


@pytest.fixture
def mail() -> Iterator[MailServer]:
    there = MailServer()
    yield there
    there.close()


@pytest.fixture
def one_that_lingers(serve: Any, mail: MailServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lingering]:
    """Give a pool with a free card, a job that was requeued, and the process that is left of it."""
    monkeypatch.setattr(engine, "_DAEMON", "tests.service.stubborn")
    monkeypatch.setattr(core, "WATCH_LOOK_S", 0.05)
    call = serve(FREE.replace("notify: {", f"notify: {{smtp: '{mail.url}', "))
    job = resumable(call, LEAVES_ONE, grace="1s")
    pid = int(call.log(job["id"], wait=20))
    try:
        call("POST", f"jobs/{job['id']}/requeue")
        give_up = time.monotonic() + 20
        while "do not end" not in call.job(job["id"])["reason"]:
            assert time.monotonic() < give_up, call.job(job["id"])
            time.sleep(0.02)
        yield call, job["id"], pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_it_starts_again_only_when_no_process_of_it_is_left(one_that_lingers: Lingering) -> None:
    call, job, pid = one_that_lingers
    other = call.submit("echo beside")
    assert call.wait(other["id"])["state"] == "completed"  # a card is free
    waits = call.job(job)
    assert (waits["state"], waits["attempt"]) == ("stopping", 1)
    assert waits["reason"] == (
        f"Requeued by {ME}. Some of its processes do not end though they were killed: "
        "it is queued again as soon as the last of them is gone."
    )
    os.kill(pid, signal.SIGKILL)
    back = call.wait(job, "running")
    assert (back["attempt"], back["reason"]) == (2, f"Requeued by {ME}.")


def test_what_is_cancelled_need_not_wait_for_its_last_process(one_that_lingers: Lingering) -> None:
    call, job, pid = one_that_lingers
    call("POST", f"jobs/{job}/cancel")
    ended = call.job(job)
    assert (ended["state"], ended["reason"]) == ("cancelled", f"Cancelled by {ME}.")
    both = [call.submit("exec sleep 100")["id"] for _ in range(2)]
    assert call.wait(both[0], "running")
    assert call.job(both[1])["waiting"], "its card is not free"
    os.kill(pid, signal.SIGKILL)
    call.wait(both[1], "running")


@pytest.mark.parametrize("cancelled", [False, True])
def test_administrators_hear_once_of_processes_that_do_not_end(
    one_that_lingers: Lingering, mail: MailServer, clock: Clock, home: Home, cancelled: bool
) -> None:
    call, job, pid = one_that_lingers
    if cancelled:
        call("POST", f"jobs/{job}/cancel")
    time.sleep(0.2)
    assert not mail.mails, "it may still end"
    clock.ahead += 61
    (first,) = mail.wait(1)
    assert (first["To"], first["Subject"]) == (
        "ops@example.org",
        f"[gpupool] Processes of the job {job} do not end on node1",
    )
    said = " ".join(first.get_content().split())
    assert f"The job {job} of {ME} ended at {datetime.now(UTC):%Y-%m-%dT}" in said
    assert f"Left on node1, though killed again and again: {pid}" in said
    clock.ahead += 86400  # what lasts is not told again
    policy = home.path / "policy.yaml"
    policy.write_text(policy.read_text() + "wrong: 1\n")
    assert "policy" in mail.wait(2)[1]["Subject"]
    os.kill(pid, signal.SIGKILL)
    call.wait(job, "running", "cancelled")
    policy.write_text(policy.read_text().replace("wrong: 1\n", ""))
    assert "Over: The policy" in mail.wait(3)[2]["Subject"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_service_killed_at_any_moment_of_a_stop_loses_and_doubles_nothing(
    spawn: Any, home: Home, moment: str
) -> None:
    (home.path / "policy.yaml").write_text(OWED + "jobs: {min_run_time: 0s}\n")
    service = spawn("1x2x8GiB", program=killed_at(moment))
    both = [resumable(service.call, SAVES, group="vision")["id"] for _ in range(2)]
    owed = service.call.submit("echo mine", group="speech")["id"]
    service.process.wait(20)
    service = spawn("1x2x8GiB")
    assert service.call.wait(owed)["state"] == "completed"
    assert service.call.job(owed)["attempt"] == 1
    (back,) = [job for job in map(service.call.job, both) if job["stops"]]
    back = service.call.wait(back["id"], "queued", "running")
    (stop,) = back["stops"]
    assert (stop["cause"], stop["taker"]) == ("reclaim", owed)
    saved = list((home.path / "jobs" / str(back["id"]) / "checkpoint").iterdir())
    assert [file.name for file in saved] == ["1"]


def test_a_service_killed_between_asking_and_the_end_loses_and_doubles_nothing(
    spawn: Any, home: Home
) -> None:
    (home.path / "policy.yaml").write_text(OWED + "jobs: {min_run_time: 0s}\n")
    service = spawn("1x2x8GiB")
    both = [resumable(service.call, SLOW, group="vision")["id"] for _ in range(2)]
    owed = service.call.submit("echo mine", group="speech")
    while not (asked := [id for id in both if service.call.job(id)["state"] == "stopping"]):
        time.sleep(0.02)
    service.kill()
    service = spawn("1x2x8GiB")
    assert service.call.wait(owed["id"])["state"] == "completed"
    back = service.call.wait(asked[0], "queued")
    assert (len(back["stops"]), back["attempt"]) == (1, 1)
    assert back["reason"].startswith(f"Stopped for job {owed['id']} of the group speech")
