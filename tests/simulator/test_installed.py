"""What an installed pool was asked for, played again: as it was, with more cards, and from a file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.app import main
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.scheduler.model import Request
from jupyter_gpupool.simulator.installed import installed, with_more
from jupyter_gpupool.simulator.workload import Task
from tests.ledger.conftest import Open, Samples, open_ledger, start_job

HOUR = 3600
ONE_CARD = Request(gpus=1, cpus_milli=1000, memory_mib=1024)


def past(path: Path, begin: int) -> None:
    """Write the ledger of a pool of one card: two jobs that ran, one that never did, and a session."""
    there = Open(path, open_ledger(path, now=begin))
    ledger = there.ledger
    ledger.set_cards(Samples.cards(1))
    asked = {"group": "everyone", "request": ONE_CARD, "window": None, "priority": "normal"}
    for _ in range(3):
        ledger.add_job(Samples.job(**asked), begin)
    for id, start in ((1, begin), (2, begin + HOUR)):
        start_job(ledger, id, Samples.place("SIM-0"), start, mode="whole")
        ledger.job_running(id, 1, start)
        there.end(id, start + HOUR)
    session = ledger.add_session(Samples.session(group="everyone"), begin + 2 * HOUR)
    ledger.session_held(
        session.id, Samples.place("SIM-0", mib=4096, milli=125), begin + 2 * HOUR, mode="cgroup"
    )
    ledger.end_session(session.id, "", begin + 3 * HOUR)
    ledger.close()


def test_what_has_run_and_is_over_is_a_workload(tmp_path: Path) -> None:
    past(tmp_path / "home" / "ledger.sqlite", 10_000)
    found = installed(tmp_path / "home" / "ledger.sqlite", 9_000, 20_000)
    job = Task(1000, HOUR, HOUR, 1, 0, "everyone", "ada", "normal", "job", True)
    session = Task(8200, HOUR, 2 * HOUR, 0, 4096, "everyone", "bob", "normal", "session")
    assert (found.start, found.tasks) == (9_000, (job, job, session))
    assert installed(tmp_path / "home" / "ledger.sqlite", 10_001, 17_000).tasks == ()


def test_more_cards_are_like_those_there() -> None:
    more = with_more(SimulatedPool.parse("1x2x8GiB"), {"node1": 1, "more": 2})
    places = [(card.node, card.index, card.memory_mib) for card in more.cards()]
    assert places == [("node1", n, 8192) for n in range(3)] + [("more", n, 8192) for n in range(2)]
    assert len({card.uuid for card in more.cards()}) == 5
    before = SimulatedPool.parse("1x2x8GiB").nodes()[0].cpus_milli
    assert [node.cpus_milli for node in more.nodes()] == [before * 3 // 2, before]


@pytest.mark.parametrize("policy", [None, 'partitions: {all: {gpus: ["*:*"], for: [job, session]}}'])
def test_the_past_with_more_cards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, policy: str | None
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUPOOL_SIMULATE", "1x1x32GiB")
    past(tmp_path / "home" / "ledger.sqlite", int(time.time()) - 5 * HOUR)
    if policy:
        (tmp_path / "home" / "policy.yaml").write_text(
            f"{policy}\ngroups: {{everyone: {{quota: {{gpus: 1}}}}}}\n"
        )

    def waits(*words: str) -> Any:
        assert main(("simulate", *words, "--json")) == 0
        return json.loads(capsys.readouterr().out)["job_wait_mean_s"]

    file = str(tmp_path / "month.csv")
    assert waits("installed", "--last", "6h", "--export", file) == HOUR / 2
    assert waits(file, "--simulate", "1x1x32GiB") == HOUR / 2
    assert waits("installed", "--last", "6h", "--more-cards", "node1:1") == 0


def test_a_pool_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    monkeypatch.setenv("GPUPOOL_SIMULATE", "1x1x32GiB")
    assert main(("simulate", "installed")) == 1
    assert capsys.readouterr().err.startswith(
        f"There is no ledger {tmp_path}/ledger.sqlite: set GPUPOOL_HOME"
    )
