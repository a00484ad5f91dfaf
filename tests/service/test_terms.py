"""From when until when something is granted, on the site's clocks."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.terms import term

BERLIN = ZoneInfo("Europe/Berlin")
NOON = int(datetime(2026, 3, 28, 12, 0, tzinfo=BERLIN).timestamp())  # the day before clocks go forward
HOUR = 3600


@pytest.mark.parametrize(
    ("start", "until", "begins", "hours"),
    [
        (None, "3d", 0, 72),
        (None, "18:00", 0, 6),
        (None, "12:00", 0, 23),  # tomorrow: an hour is missing
        ("18:00", "06:00", 6, 11),
        ("2h", "90m", 2, 1.5),
        ("2026-03-29 02:30", "2026-03-29 05:00", 14, 2),  # no clock shows 02:30: 03:00
        ("2026-10-25 02:30", "2026-10-25 02:30", None, 1),  # the first one, until the second
        ("2026-03-28 12:00:01", "2026-03-28T12:00:00Z", 0, 1),
    ],
)
def test_a_term(start: str | None, until: str, begins: float | None, hours: float) -> None:
    found = term(start, until, BERLIN, NOON)
    assert begins is None or abs(found[0] - NOON - begins * HOUR) <= 1
    assert abs(found[1] - found[0] - hours * HOUR) <= 1


@pytest.mark.parametrize(
    ("start", "until", "says"),
    [
        (None, "2026-03-28 11:00", "does not come after the start, 2026-03-28 12:00 CET"),
        ("2026-03-30", "2026-03-29", "does not come after the start"),
        ("2026-03-28 11:00", "3d", "start 2026-03-28 11:00 is over"),
        (None, "2028-01-01", "is too far away"),
        (None, "9999-12-31", "is no time"),
        (None, "0001-01-01", "is no time"),
        (None, "25:00", "is no time"),
        (None, "0s", "is zero"),
        (None, "-3d", "is no time"),
        (None, "nan", "is no time"),
        ("inf", "3d", "start 'inf' is no time"),
    ],
)
def test_what_is_no_term_is_refused(start: str | None, until: str, says: str) -> None:
    with pytest.raises(ApiError, match=says):
        term(start, until, BERLIN, NOON)
