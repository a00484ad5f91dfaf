"""Cards that processes can be on: who is on them, and what the grants say."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.devices.base import Process
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.service import core
from tests.service.receivers import MailServer

SITE = """
partitions: {all: {gpus: ["*:*"], for: [job, session], slices: [{gpus: 1}]}}
groups: {team: {quota: {gpus: 2}}}
default_group: team
storage: {min_free: 1MiB}
notify: {smtp: "MAIL", to: "{user}@example.org", admins: [ops@example.org]}
"""


class RealPool(SimulatedPool):
    """Looks real to the service; the test says which processes are on its cards."""

    simulated = False
    on_cards: tuple[Process, ...] = ()
    sick = ""

    def processes(self) -> list[Process]:
        return list(self.on_cards)

    def healthy(self) -> dict[str, str]:
        return {card.uuid: self.sick if card.index == 1 else "" for card in self.cards()}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> RealPool:
    monkeypatch.setattr(core.CardLocks, "take", lambda uuids, home: core.CardLocks([], advisory=True))
    monkeypatch.setattr(RealPool, "on_cards", ())
    return RealPool(1, 2, 8192)


def test_a_slice_and_a_whole_card_say_how_well_they_are_kept_apart(start: Any, pool: RealPool) -> None:
    call = start(parts={"pool": pool})
    whole = call.submit("env; sleep 100")
    part = call.submit("env; sleep 100", resources={"gpu_memory": "2GiB", "cpus": 1, "mem": "256MiB"})
    for job, mode, uuid in ((whole, "whole", "SIM-node1-0"), (part, "timeslice", "SIM-node1-1")):
        found = call.wait(job["id"], "running")["placement"]
        assert (found["mode"], found["isolation"], found["gpus"][0]["uuid"]) == (mode, "soft", uuid)
        assert f"CUDA_VISIBLE_DEVICES={uuid}\n" in call.log(job["id"], wait=5).decode()
    assert "per_process_memory_fraction:0.25" in call.log(part["id"]).decode()
    assert not call.job(part["id"])["simulated"]


def test_processes_of_no_lease_are_shown(start: Any, pool: RealPool, monkeypatch: pytest.MonkeyPatch) -> None:
    call = start(parts={"pool": pool})
    job = call.submit("echo $$; sleep 100")
    pid = int(call.log(job["id"], wait=10))
    stranger = subprocess.Popen(["sleep", "100"])
    on_cards = (
        Process(pid, "SIM-node1-0", 100, "compute"),
        Process(stranger.pid, "SIM-node1-0", 300, "compute"),
    )
    monkeypatch.setattr(RealPool, "on_cards", on_cards)
    card = call("GET", "pool").body["nodes"][0]["gpus"][0]
    assert [found["pid"] for found in card["strangers"]] == [stranger.pid]
    assert (card["strangers"][0]["mib"], card["strangers"][0]["command"]) == (300, "sleep")
    assert [lease["job"] for lease in card["leases"]] == [job["id"]]
    stranger.kill()
    stranger.wait()


def test_a_server_is_no_stranger(
    hub_side: Any, pool: RealPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = hub_side(pool=pool)
    work = hub.ask(groups=["everyone"], slice="1").body["work"]
    hub.start(work, f"echo $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/pid; sleep 100")
    while not (tmp_path / "pid").exists():
        time.sleep(0.02)
    pid = int((tmp_path / "pid").read_text())
    monkeypatch.setattr(RealPool, "on_cards", (Process(pid, "SIM-node1-0", 100, "compute"),))
    card = hub.call("GET", "pool").body["nodes"][0]["gpus"][0]
    assert (card["strangers"], len(card["leases"])) == ([], 1)


def test_administrators_hear_of_processes_that_stay_on_the_card_of_a_session_that_is_over(
    start: Any, pool: RealPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "WATCH_LOOK_S", 0.05)
    mail, ahead = MailServer(), [0.0]
    call = start(
        policy=SITE.replace("MAIL", mail.url),
        parts={"pool": pool, "clock": lambda: time.time() + ahead[0]},
    )
    session = call("POST", "leases", {"gpus": 1}).body["id"]
    assert call("GET", f"leases/{session}?wait=20").body["state"] == "held"
    monkeypatch.setattr(RealPool, "on_cards", (Process(os.getpid(), "SIM-node1-0", 100, "compute"),))
    call("DELETE", f"leases/{session}")
    ahead[0] = 61.0
    (first,) = mail.wait(1)
    assert first["Subject"] == f"[gpupool] Processes of the session {session} do not end on node1"
    said = " ".join(first.get_content().split())
    assert f"Left on node1, on its cards: {os.getpid()}." in said
    mail.close()


def test_a_sick_card_takes_no_work_and_says_why(start: Any, pool: RealPool) -> None:
    pool.__class__.sick = "GPU 1 is out of use: it is lost."
    try:
        call = start(parts={"pool": pool})
        card = call("GET", "pool").body["nodes"][0]["gpus"][1]
        assert (card["available"], card["because"]) == (False, "GPU 1 is out of use: it is lost.")
        assert call("GET", "/services/gpupool/health").body["troubles"] == [
            "GPU 1 is out of use: it is lost."
        ]
        first, second = call.submit("sleep 100"), call.submit("true")
        call.wait(first["id"], "running")
        assert call.job(second["id"])["state"] == "queued"
    finally:
        pool.__class__.sick = ""
