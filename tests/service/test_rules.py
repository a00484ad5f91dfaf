"""Sessions that do nothing, devices that nobody uses, ends that come: counted, said, and acted on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpupool.devices.base import Load
from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.frame import frame_of
from jupyter_gpupool.ledger import CardRecord, Ledger, NewJob, NewSession, SessionRecord
from jupyter_gpupool.ledger.outbox import Message
from jupyter_gpupool.ledger.records import StartOrder
from jupyter_gpupool.ledger.use import CardUse, Use
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.scheduler.model import GpuShare, Lease, Placement, Request
from jupyter_gpupool.service.activity import HOLDS_S, MOST_SERVERS, Activity, Kernel
from jupyter_gpupool.service.events import Bus
from jupyter_gpupool.service.meter import Meter, Seen, measured, seen
from jupyter_gpupool.service.news import News
from jupyter_gpupool.service.rules import LAST_CHANCE_S, UNUSED_CELL_S, UNUSED_JOB_S, Rules
from tests.service.fake_engine import FakeEngine

SITE = """
partitions: {all: {gpus: ['*:*'], for: [job, session]}}
groups: {team: {quota: {gpus: 2}}}
default_group: team
calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}
"""
MIDDAY = 12 * 3600
HOUR = 3600


class RealPool(SimulatedPool):
    """Looks real; the test says how busy its cards are."""

    simulated = False

    def __init__(self) -> None:
        super().__init__(1, 2, 8192)
        self.busy: dict[str, Load] = {}

    def loads(self) -> dict[str, Load]:
        return dict(self.busy)


class Site:
    """A ledger with rules, at a time that the test says."""

    def __init__(self, folder: Path, pool: SimulatedPool, rules: str) -> None:
        self.now = MIDDAY
        self.pool = pool
        self.policy = load_policy(SITE + rules)
        self.health: dict[str, str] = {}
        self.ledger = Ledger.open(folder / "ledger.sqlite", now=self.now, boot_id="b")
        self.ledger.set_cards(
            CardRecord(card.uuid, card.node, card.index, card.model, card.memory_mib) for card in pool.cards()
        )
        self.told: list[Message] = []
        self.ended: list[tuple[str, str]] = []
        self.bus = Bus(first=1)
        self.activity = Activity()
        self.engine = FakeEngine(folder)
        self.rules = Rules(
            self,  # type: ignore[arg-type]
            Meter(pool, self.ledger, self.engine),  # type: ignore[arg-type]
            self.activity,
            News(self.bus),
            self.told.append,
            release=self._end("release"),
            stop=self._end("stop"),
        )

    @property
    def frame(self) -> Any:
        return frame_of(self.policy, self.pool, {}, self.now, None, "here")

    def _end(self, how: str) -> Any:
        async def end(session: SessionRecord, because: str) -> None:
            self.ended.append((how, because))
            self.ledger.end_session(session.id, because, self.now)

        return end

    def session(
        self, card: int = 0, limit_s: int = 100 * HOUR, mib: int = 1024, **changes: Any
    ) -> SessionRecord:
        new = NewSession("ada", "team", "lab", Request(gpu_mib=mib), limit_s, **{"pid": 77, **changes})
        session = self.ledger.add_session(new, self.now)
        place = Placement(("node1",), (GpuShare(f"SIM-node1-{card}", mib),), 125, "all")
        self.ledger.session_held(session.id, place, self.now, mode="timeslice")
        return self.ledger.sessions[session.id]

    def job(self, card: int = 1) -> int:
        new = NewJob("ada", "team", "train", "command", "normal", 9 * HOUR, 60, Request(gpus=1), {}, "/")
        id = self.ledger.add_job(new, self.now).id
        place = Placement(("node1",), (GpuShare(f"SIM-node1-{card}", 8192),), 1000, "all")
        self.ledger.start_jobs([StartOrder(id, place, "whole")], self.now)
        self.ledger.job_running(id, 1, self.now)
        return id

    def kernels(self, busy: bool, server: str | None = None, pid: int | None = 77) -> None:
        self.activity.report("ada", server, (Kernel(pid, busy), Kernel(5, False)), self.now)

    def pass_(
        self, seconds: int, *, busy: bool | None = None, step: int = 60, server: str | None = None
    ) -> None:
        """Let time pass; the kernels say what they do at each look (None: nothing)."""
        for _ in range(seconds // step):
            self.now += step
            if busy is not None:
                self.kernels(busy, server)
            asyncio.run(self.rules.look())

    def said(self) -> list[str]:
        return [message.text for message in self.told]

    def warnings(self) -> list[str]:
        return [event.data["text"] for event in self.bus.after(0, "ada") if event.kind == "warning"]


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Any]:
    sites: list[Site] = []

    def make(rules: str = "", pool: SimulatedPool | None = None) -> Site:
        sites.append(Site(tmp_path, pool or SimulatedPool(1, 2, 8192), rules))
        return sites[-1]

    yield make
    for site in sites:
        site.ledger.close()


def test_an_idle_session_is_warned_once_and_left_alone(open_site: Any) -> None:
    site = open_site("sessions: {idle_after: 1h}\n")
    site.session()
    site.pass_(HOUR, busy=False)
    assert site.said() == []
    site.pass_(5 * HOUR, busy=False, step=300)
    (text,) = site.said()
    assert text.startswith("It has done nothing for 1 h. Others could use what it holds")
    assert (len(site.warnings()), site.ended) == (1, [])


def test_idleness_is_counted_for_the_report(open_site: Any) -> None:
    site = open_site("sessions: {idle_after: 30m}\n")
    site.session()
    site.pass_(HOUR, busy=True)
    site.pass_(HOUR, busy=False)
    (day,) = site.ledger.days.between(site.policy.zone, 0, 86400, site.now)()
    use = day.uses["team", "ada", "session"]
    assert (use.idle_s, use.idled) == (HOUR - 60, 1)


def test_a_cell_that_runs_ends_idleness_and_the_next_counts_anew(open_site: Any) -> None:
    site = open_site("sessions: {idle_after: 1h, idle_action: release}\n")
    site.session()
    site.pass_(HOUR + 120, busy=False)
    assert len(site.said()) == 1
    site.pass_(60, busy=True)
    site.pass_(HOUR, busy=False)
    assert (len(site.said()), site.ended) == (1, [])
    site.pass_(60, busy=False)
    assert len(site.said()) == 2


@pytest.mark.parametrize("action", ["release", "stop"])
def test_an_idle_session_is_ended_ten_minutes_after_the_warning(open_site: Any, action: str) -> None:
    site = open_site(f"sessions: {{idle_after: 1h, idle_action: {action}}}\n")
    session = site.session()
    site.pass_(HOUR + 60, busy=False)
    assert "in 10 min unless it works by then" in site.said()[0]
    site.pass_(LAST_CHANCE_S - 60, busy=False, step=180)
    assert site.ended == []
    site.pass_(60, busy=False)
    assert site.ended == [(action, "It did nothing for 1 h 10 min.")]
    assert site.told[-1].subject == f"Session {session.id} was ended"
    site.pass_(HOUR, busy=False)
    assert len(site.ended) == 1


def test_what_is_done_follows_the_calendar(open_site: Any) -> None:
    site = open_site("sessions: {idle_after: 1h, idle_action: {night: stop, otherwise: warn}}\n")
    site.session()
    site.pass_(7 * HOUR, busy=False, step=300)  # 19:00
    assert site.ended == []
    site.pass_(HOUR + 60, busy=False)
    assert site.ended == []
    by_day, at_night = site.said()
    assert "Others could use" in by_day
    assert "It is stopped in 10 min" in at_night
    assert len({message.key for message in site.told}) == 2
    site.pass_(LAST_CHANCE_S, busy=False)
    assert [how for how, _ in site.ended] == ["stop"]


def test_a_last_chance_that_the_calendar_takes_back_is_given_again(open_site: Any) -> None:
    site = open_site("sessions: {idle_after: 1h, idle_action: {night: stop, otherwise: warn}}\n")
    site.now += 19 * HOUR - 300  # 06:55
    site.session()
    site.pass_(HOUR + 120, busy=False)
    assert ["in 10 min" in text for text in site.said()] == [True]
    site.pass_(12 * HOUR, busy=False, step=300)  # 19:57
    assert (len(site.said()), site.ended) == (1, [])
    site.pass_(300, busy=False)
    assert (len({message.key for message in site.told}), site.ended) == (2, [])
    site.pass_(LAST_CHANCE_S, busy=False)
    assert [how for how, _ in site.ended] == ["stop"]


def test_what_is_not_known_is_not_idle(open_site: Any) -> None:
    site = open_site("sessions: {idle_after: 1h, idle_action: stop}\n")
    site.session()
    site.pass_(5 * HOUR, step=300)  # nobody has said anything
    assert (site.said(), site.ended) == ([], [])
    site.pass_(50 * 60, busy=False, step=300)
    site.pass_(HOLDS_S + 120)  # its server falls silent
    site.pass_(50 * 60, busy=False, step=300)
    assert (site.said(), site.ended) == ([], [])


def test_a_device_in_use_is_work_and_one_that_tells_nothing_is_not_idle(open_site: Any) -> None:
    pool = RealPool()
    site = open_site("sessions: {idle_after: 1h, idle_action: stop}\n", pool)
    site.session()
    for load in (Load(), Load(10)):
        pool.busy = {"SIM-node1-0": load}
        site.pass_(2 * HOUR, busy=False, step=120)
        assert (site.said(), site.ended) == ([], []), load
    pool.busy = {"SIM-node1-0": Load(0)}
    site.pass_(2 * HOUR, busy=False, step=120)
    assert [how for how, _ in site.ended] == ["stop"]


def test_a_server_is_as_busy_as_any_of_its_kernels(open_site: Any) -> None:
    site = open_site("sessions: {idle_after: 1h}\n")
    session = site.session(pid=None, server="ada/gpu")
    site.kernels(True, "gpu")
    assert site.activity.busy(session, site.now) is True
    site.kernels(False, "gpu")
    assert site.activity.busy(session, site.now) is False
    assert site.activity.busy(session, site.now + HOLDS_S + 1) is None
    site.activity.report("eve", "gpu", (Kernel(1, True),), site.now)
    assert site.activity.busy(session, site.now) is False
    other = site.session(1, pid=78)
    site.kernels(True, None, pid=79)
    assert site.activity.busy(other, site.now) is None
    for number in range(MOST_SERVERS):
        site.now += 1
        site.activity.report("ada", f"made-up-{number}", (), site.now)
    assert site.activity.busy(session, site.now) is None, "so much said in one user's name is not all kept"


def test_the_end_is_announced_a_quarter_of_an_hour_before(open_site: Any) -> None:
    site = open_site()
    session = site.session(limit_s=2 * HOUR)
    site.pass_(2 * HOUR - 16 * 60, step=120)
    assert site.said() == []
    site.pass_(120)
    site.pass_(10 * 60)
    assert site.said() == ["Its time ends in 15 min: save what you need."]
    (event,) = [event for event in site.bus.after(0, "ada") if event.kind == "warning"]
    assert event.data["ends_at"] == "1970-01-01T14:00:00Z"
    assert site.bus.after(0, "eve") == []
    assert session.id == event.data["lease"]


def test_a_short_session_hears_of_its_end_when_a_quarter_is_left(open_site: Any) -> None:
    site = open_site()
    site.session(limit_s=20 * 60)
    site.pass_(14 * 60)
    assert site.said() == []
    site.pass_(60)
    assert site.said() == ["Its time ends in 5 min: save what you need."]


def test_of_the_shortest_too_its_end_is_announced(open_site: Any) -> None:
    site = open_site()
    site.session(limit_s=120)
    site.pass_(120)
    assert site.said() == ["Its time ends in 1 min: save what you need."]


def test_a_cell_that_runs_for_hours_without_its_device_is_reported_once(open_site: Any) -> None:
    pool = RealPool()
    site = open_site("", pool)
    site.session()
    pool.busy = {"SIM-node1-0": Load(0)}
    site.pass_(UNUSED_CELL_S, busy=True, step=300)
    assert site.said() == []
    site.pass_(HOUR, busy=True, step=300)
    assert site.said() == ["A cell has been running for 4 h without using its GPU."]
    pool.busy = {"SIM-node1-0": Load(300)}
    site.pass_(60, busy=True)
    pool.busy = {"SIM-node1-0": Load(0)}
    site.pass_(HOUR, busy=True, step=300)
    assert len(site.said()) == 1


def test_a_job_at_rest_is_reported_to_its_owner(open_site: Any) -> None:
    pool = RealPool()
    site = open_site("", pool)
    job = site.job()
    pool.busy = {"SIM-node1-1": Load(0)}
    site.pass_(UNUSED_JOB_S)
    assert site.said() == []
    site.pass_(HOUR)
    (message,) = site.told
    assert (message.user, message.subject) == ("ada", f"Job {job} does not use its GPU")
    assert "at 0 % for 1 h" in message.text
    assert [note.text for note in site.ledger.notes(job)] == ["Its GPU has been at 0 % for 1 h."]
    assert len(site.warnings()) == 1


def test_on_simulated_cards_no_job_is_at_rest(open_site: Any) -> None:
    site = open_site()
    site.job()
    site.pass_(3 * HOUR, step=300)
    assert site.said() == []


# -- the meter -----------------------------------------------------------------------------------------------


def lease(id: int, *uuids: str, milli: int = 1000) -> Lease:
    place = Placement(("node1",), tuple(GpuShare(uuid, 8192) for uuid in uuids), milli * len(uuids), "all")
    return Lease(id, id, "job", f"u{id}", "team", "normal", Request(gpus=len(uuids)), place, 0, 9, True)


def test_a_lease_alone_on_its_cards_is_as_busy_as_they_are() -> None:
    loads = {"a": Load(300), "b": Load(500), "c": Load(None)}
    found = seen([lease(1, "a", "b"), lease(2, "c"), lease(3)], loads, {})
    assert found == Seen({1: 800, 2: None}, {"a": 300, "b": 500})


def test_leases_that_share_a_card_are_told_apart_by_their_processes() -> None:
    held = [lease(1, "a", milli=125), lease(2, "a", milli=125), lease(3, "a", milli=125)]
    found = seen(held, {"a": Load(450, {10: 200, 11: 100, 20: 150, 99: 7})}, {10: 1, 11: 1, 20: 2})
    assert found.leases == {1: 300, 2: 150, 3: 0}
    assert seen(held, {"a": Load(450, None)}, {}).leases == {1: None, 2: None, 3: None}


def test_what_is_measured_counts_for_so_long_as_was_looked() -> None:
    held = [lease(1, "a"), lease(2, "b", milli=125), lease(3, "c")]
    uses, cards = measured(held, Seen({1: 250, 2: 100, 3: None}, {"a": 250}), 60)
    assert uses == {
        ("team", "u1", "job"): Use(known_milli_s=60_000, used_milli_s=15_000),
        ("team", "u2", "job"): Use(known_milli_s=7_500, used_milli_s=6_000),
    }
    assert cards == {"a": CardUse(known_s=60, used_milli_s=15_000)}


def test_what_was_measured_is_in_the_report_of_the_day(open_site: Any) -> None:
    pool = RealPool()
    site = open_site("", pool)
    site.job()
    pool.busy = {"SIM-node1-1": Load(400)}
    site.pass_(HOUR)
    (day,) = site.ledger.days.between(site.policy.zone, 0, 86400, site.now)()
    use = day.uses["team", "ada", "job"]
    assert use.known_milli_s == 1000 * (HOUR - 60)
    assert use.used_milli_s == 400 * (HOUR - 60)


# -- the service ---------------------------------------------------------------------------------------------


def test_a_jupyter_server_says_what_its_kernels_do(start: Any) -> None:
    call = start("1x1x8GiB")
    said = {"server": None, "kernels": [{"pid": os.getpid(), "busy": True}]}
    assert call("POST", "activity", said).status == 200
    assert call("POST", "activity", {"kernels": [{"pid": 1}]}).status == 422
