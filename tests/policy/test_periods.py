"""Periods of budgets: hand-computed boundaries, across years and changes of clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.policy.periods import PeriodKind, period

BERLIN, SHANGHAI, KATHMANDU = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai"), ZoneInfo("Asia/Kathmandu")
KINDS: tuple[PeriodKind, ...] = ("week", "month", "quarter", "year")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.parametrize(
    ("kind", "zone", "now", "start", "end"),
    [
        ("week", ZoneInfo("UTC"), "2026-10-29T12:00", "2026-10-26T00:00", "2026-11-02T00:00"),
        ("week", BERLIN, "2026-10-23T12:00", "2026-10-18T22:00", "2026-10-25T23:00"),  # 169 hours
        ("month", BERLIN, "2026-03-31T22:30", "2026-03-31T22:00", "2026-04-30T22:00"),
        ("month", BERLIN, "2026-03-31T21:59", "2026-02-28T23:00", "2026-03-31T22:00"),
        ("month", SHANGHAI, "2026-12-31T16:00", "2026-12-31T16:00", "2027-01-31T16:00"),
        ("quarter", KATHMANDU, "2026-11-15T00:00", "2026-09-30T18:15", "2026-12-31T18:15"),
        ("year", BERLIN, "2026-07-01T00:00", "2025-12-31T23:00", "2026-12-31T23:00"),
        ("month", ZoneInfo("Asia/Beirut"), "2024-03-31T12:00", "2024-02-29T22:00", "2024-03-31T21:00"),
    ],
)
def test_worked_periods(kind: PeriodKind, zone: ZoneInfo, now: str, start: str, end: str) -> None:
    found = period(kind, zone, at(now), at(now))
    assert (text(found.start), text(found.ends[0])) == (start, end)


def test_where_midnight_is_skipped_a_day_begins_when_clocks_have_changed() -> None:
    week = period("week", ZoneInfo("America/Sao_Paulo"), at("2018-11-05T12:00"), at("2018-11-05T12:00"))
    assert text(week.start) == "2018-11-05T02:00"  # Monday, in summer time since Sunday 01:00
    month = period("month", ZoneInfo("America/Asuncion"), at("2017-10-01T12:00"), 0)
    assert text(month.start) == "2017-10-01T04:00"  # 00:00 was skipped; 01:00 is UTC-3


def test_the_ends_that_follow_reach_as_far_as_asked() -> None:
    found = period("month", BERLIN, at("2026-01-15T00:00"), at("2026-03-20T00:00"))
    assert [text(end) for end in found.ends] == ["2026-01-31T23:00", "2026-02-28T23:00", "2026-03-31T22:00"]


@given(st.sampled_from(KINDS), st.integers(0, 4_000_000_000), st.sampled_from([BERLIN, SHANGHAI, KATHMANDU]))
def test_periods_follow_each_other_without_a_gap(kind: PeriodKind, now: int, zone: ZoneInfo) -> None:
    found = period(kind, zone, now, now + 70 * 86400)
    assert found.start <= now < found.ends[0]
    assert list(found.ends) == sorted(set(found.ends))
    for end in found.ends[:2]:
        assert period(kind, zone, end, end).start == end
        assert period(kind, zone, end - 1, 0).ends[0] == end
