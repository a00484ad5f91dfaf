"""Weeks, months and moments as people write them, on the site's clocks."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.periods import moment, period

BERLIN = ZoneInfo("Europe/Berlin")
NOW = int(datetime(2026, 10, 28, 12, 0, tzinfo=BERLIN).timestamp())  # a Wednesday, after the clocks went back


def local(seconds):
    return f"{datetime.fromtimestamp(seconds, BERLIN):%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ({"days": 1}, "2026-10-28 00:00", "2026-10-29 00:00"),
        ({"days": 7}, "2026-10-22 00:00", "2026-10-29 00:00"),
        ({"week": "this"}, "2026-10-26 00:00", "2026-11-02 00:00"),
        ({"week": "last"}, "2026-10-19 00:00", "2026-10-26 00:00"),
        ({"week": "2026-W01"}, "2025-12-29 00:00", "2026-01-05 00:00"),
        ({"week": "2026-10-21"}, "2026-10-19 00:00", "2026-10-26 00:00"),
        ({"month": "this"}, "2026-10-01 00:00", "2026-11-01 00:00"),
        ({"month": "last"}, "2026-09-01 00:00", "2026-10-01 00:00"),
        ({"month": "2025-12"}, "2025-12-01 00:00", "2026-01-01 00:00"),
        ({"month": "2026-02-11"}, "2026-02-01 00:00", "2026-03-01 00:00"),
    ],
)
def test_periods_are_whole_local_days(query, first, last):
    found = period({"days": 7, **query}, BERLIN, NOW)
    assert tuple(map(local, found)) == (first, last)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"week": "2026-W60"}, "is no week. Write this, last, 2026-W42"),
        ({"week": "soon"}, "'soon' is no week"),
        ({"week": "0001-01-01"}, "is no week"),
        ({"month": "2026-13"}, "is no month"),
        ({"month": "9999-12"}, "is no month"),
        ({"month": "2027-01"}, "2027-01 is still to come"),
        ({"week": "this", "month": "this"}, "of a week or of a month"),
    ],
)
def test_what_is_no_period_is_refused(query, says):
    with pytest.raises(ApiError) as refused:
        period({"days": 7, **query}, BERLIN, NOW)
    assert says in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-10-12 03:00", "2026-10-12 03:00"),
        ("2026-10-12T03:00", "2026-10-12 03:00"),
        ("2026-10-12T03:00:00Z", "2026-10-12 05:00"),
        ("2026-10-12", "2026-10-12 00:00"),
        ("11:30", "2026-10-28 11:30"),
        ("12:30", "2026-10-27 12:30"),
        ("2026-03-29 02:30", "2026-03-29 03:00"),
    ],
)
def test_moments(text, found):
    assert local(moment(text, BERLIN, NOW)) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("noon", "is no time"),
        ("25:00", "is no time"),
        ("2026-11-01 00:00", "still to come"),
        ("", "is no time"),
        ("0001-01-01", "is no time"),
        ("1066-10-14", "is no time"),
    ],
)
def test_what_is_no_moment_of_the_past_is_refused(text, says):
    with pytest.raises(ApiError, match=says):
        moment(text, BERLIN, NOW)
