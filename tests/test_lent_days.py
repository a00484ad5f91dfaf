"""From a policy's calendar to when cards are lent: in the site's own days."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.frame import frame_of
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.scheduler.lending import Lender, lenders
from jupyter_gpupool.scheduler.model import Lend, Usage

POLICY = """
timezone: {zone}
calendars: {{night: {{weekly: [{weekly}]{holidays}}}}}
partitions:
  development:
    gpus: ["node1:*"]
    for: [session]
    slices: [{{share: 1/4}}, {{share: 1/8}}, {{gpus: 1}}]
    lend: {{to: training, during: night, by_day: true, headroom: 3, settle: 90m}}
  training: {{gpus: ["node2:*"], for: [job]}}
groups: {{everyone: {{quota: {{gpus: 4}}}}}}
"""
NIGHT = '"Mon-Sun 22:00-06:00"'
NIGHT_AND_WEEKEND = '"Mon-Fri 20:00-08:00", "Sat-Sun 00:00-24:00"'


def at(text: str, zone: str, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


def lender(zone: str, weekly: str, now: int, holidays: str = "") -> Lender:
    named = f", holidays: {holidays}" if holidays else ""
    policy = load_policy(POLICY.format(zone=zone, weekly=weekly, holidays=named))
    frame = frame_of(policy, SimulatedPool.parse("2x2x8GiB"), {}, now, None, "")
    return lenders(frame.snapshot((), (), (), Usage()))["development"]


@pytest.mark.parametrize(
    ("zone", "weekly", "holidays", "now", "back"),
    [
        ("Europe/Berlin", NIGHT, "", "2026-10-24T22:00", "2026-10-25T06:00"),
        ("Europe/Berlin", NIGHT, "", "2027-03-28T01:59", "2027-03-28T06:00"),
        ("Asia/Shanghai", NIGHT, "", "2026-06-10T05:59", "2026-06-10T06:00"),
        ("America/New_York", NIGHT, "", "2026-06-10T06:00", "2026-06-11T06:00"),
        ("Asia/Kolkata", NIGHT_AND_WEEKEND, "", "2026-06-12T20:00", "2026-06-15T00:00"),
        ("Asia/Shanghai", '"Sun 00:00-24:00"', "CN", "2026-10-01T12:00", "2026-10-08T00:00"),
    ],
)
def test_cards_are_handed_back_when_the_sites_clocks_say_so(
    zone: str, weekly: str, holidays: str, now: str, back: str
) -> None:
    time = at(now, zone)
    assert lender(zone, weekly, time, holidays).hand_back(time) == at(back, zone)


@pytest.mark.parametrize(("evening", "hours"), [("2026-10-24", 9), ("2027-03-27", 7), ("2026-06-10", 8)])
def test_a_night_lends_as_long_as_the_clock_change_makes_it(evening: str, hours: int) -> None:
    start = at(f"{evening}T22:00", "Europe/Berlin")
    assert lender("Europe/Berlin", NIGHT, start).hand_back(start) - start == hours * 3600


def test_a_make_up_working_day_is_no_weekend() -> None:
    """Sunday 2026-09-20 is a working day in China, for the National Day holidays."""
    sunday = at("2026-09-20T12:00", "Asia/Shanghai")
    weekend = '"Sat-Sun 00:00-24:00"'
    assert lender("Asia/Shanghai", weekend, sunday).in_window(sunday)
    assert not lender("Asia/Shanghai", weekend, sunday, "CN").in_window(sunday)


def test_a_frame_made_within_the_settling_time_still_knows_when_the_window_ended() -> None:
    morning = at("2026-06-10T06:00", "Europe/Berlin")
    for now in (morning, morning + 3600, morning + 5399):
        assert not lender("Europe/Berlin", NIGHT, now).open(now)
    assert lender("Europe/Berlin", NIGHT, morning + 5400).open(morning + 5400)


def test_headroom_is_counted_in_the_smallest_slice() -> None:
    now = at("2026-06-10T12:00", "UTC")
    assert lender("UTC", NIGHT, now).lend == Lend("training", "night", True, 3, (1, 8), 5400)
