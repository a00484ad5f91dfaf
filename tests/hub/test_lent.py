"""Lent cards are back when somebody logs in, by night and by day, and each morning; the jobs go on later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.hub import stepped
from tests.hub.site import Site, until
from tests.spawner.backends import COMMAND

pytestmark = [pytest.mark.requires_server("node"), pytest.mark.timeout(300)]

POLICY = """
timezone: UTC
calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}
partitions:
  development:
    gpus: ["node1:*"]
    for: [session]
    slices: [{share: 1/2, cpus: 1, memory: 1GiB}, {gpus: 1, cpus: 1, memory: 1GiB}]
    lend: {to: training, during: night, by_day: true, headroom: 2, settle: 0s}
  training: {gpus: ["node2:*"], for: [job]}
groups:
  vision: {quota: {gpus: 4}, members: [ada, bob, chen, dora]}
jobs: {grace: 20s}
run_as: service
"""
WHOLE = {"slice": "1"}
TRAINS = """
cd $GPUPOOL_CHECKPOINT_DIR
echo from $(ls | wc -l)
trap 'sleep 3; touch $GPUPOOL_ATTEMPT; exit 1' TERM
while :; do sleep 0.05; done
"""


class Pool:
    """A site whose clock a test sets, and ada's jobs."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.token = ""
        self.ahead = 0.0

    def open(self, *moment: int) -> None:
        self.set(*moment)
        self.site.start()
        self.token = self.site.token_of("ada")

    def set(self, *moment: int) -> None:
        self.ahead = datetime(*moment, tzinfo=UTC).timestamp() - datetime.now(UTC).timestamp()
        stepped.step(self.site.home, self.ahead)

    def later(self, seconds: float) -> None:
        self.ahead += seconds
        stepped.step(self.site.home, self.ahead)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, reply = self.site.pool(method, path, body, token=self.token)
        assert status < 300, reply
        return reply

    def submit(self, gpus: int) -> int:
        body = {
            "kind": "command",
            "entry": {"argv": ["sh", "-c", TRAINS]},
            "environment": {"PATH": "/usr/bin:/bin"},
            "resources": {"gpus": gpus, "cpus": 1, "mem": "64MiB"},
            "time": "12h",
            "resumable": True,
            "workdir": "/",
        }
        job = int(self.ask("POST", "jobs", body)["id"])
        self.runs(job, 1)
        return job

    def job(self, id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"jobs/{id}")
        return found

    def runs(self, id: int, attempt: int) -> None:
        """Wait until a job runs and is ready to be asked."""
        log = f"jobs/{id}/logs?attempt={attempt}"
        until(
            lambda: self.job(id)["attempt"] == attempt and self.ask("GET", log),
            f"job {id} runs for the {attempt}. time",
            lambda: f"{self.job(id)}\n{self.site.tail()}",
        )
        assert self.ask("GET", log).split() == ["from", str(attempt - 1)]

    def left(self, id: int, *causes: str) -> dict[str, Any]:
        """Wait until a job has been stopped for `causes`, the oldest first, and is in the queue again."""
        until(
            lambda: (
                [stop["cause"] for stop in self.job(id)["stops"]] == [*causes]
                and self.job(id)["state"] == "queued"
            ),
            f"job {id} has left: {causes}",
            lambda: f"{self.job(id)}\n{self.site.tail()}",
        )
        return self.job(id)


@pytest.fixture(scope="module")
def pool(make_site: Callable[..., Site]) -> Pool:
    extra = f"{stepped.configuration()}\nc.Spawner.cmd = {COMMAND!r}"
    return Pool(make_site(pool="2x2x8GiB", policy=POLICY, extra=extra))


def told(site: Site, user: str) -> list[str]:
    """Return what a login is told until its server is there."""
    assert site.begin(user, WHOLE)[0] == 202
    heard: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: heard.extend(site.progress(user)), daemon=True)
    thread.start()
    site.ready(user)
    thread.join(30)
    return [event.get("message", "") for event in heard]


def test_who_logs_in_gets_the_card_and_the_job_goes_on_later(pool: Pool) -> None:
    site = pool.site
    pool.open(2027, 1, 5, 22, 0)
    site.log_in("ada", WHOLE)
    stays, lent = pool.submit(gpus=2), pool.submit(gpus=1)
    assert pool.job(lent)["placement"]["nodes"] == ["node1"]

    said = told(site, "bob")  # at night
    assert any(f"Waits for job {lent} of vision, asked to stop" in text for text in said), said
    assert "needs the card that was lent" in pool.left(lent, "session")["reason"]
    site.end("bob")
    site.gone("bob")
    pool.later(60)
    pool.runs(lent, 2)

    pool.set(2027, 1, 6, 7, 59, 30)  # in the morning
    handed_back = pool.left(lent, "session", "hand_back")["stops"][1]
    assert datetime.fromisoformat(handed_back["leaves_by"]) >= datetime(2027, 1, 6, 8, tzinfo=UTC)
    pool.set(2027, 1, 6, 9, 0)
    until(lambda: pool.job(lent)["waiting"]["reason"] == "Resources", "no card is left for it", site.tail)
    site.end("ada")  # more is free now than people may need at once
    pool.runs(lent, 3)

    site.log_in("chen", WHOLE)
    assert pool.job(lent)["state"] == "running"
    said = told(site, "dora")  # by day
    assert any(f"Waits for job {lent} of vision, asked to stop" in text for text in said), said
    pool.left(lent, "session", "hand_back", "session")
    assert {lease["user"] for lease in site.leases() if lease["kind"] == "session"} == {"chen", "dora"}
    assert (pool.job(stays)["state"], pool.job(stays)["stops"]) == ("running", [])
