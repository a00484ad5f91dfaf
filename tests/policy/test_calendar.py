from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.policy.calendar import windows
from jupyter_gpupool.policy.model import Calendar
from jupyter_gpupool.policy.weekly import DAYS

HOUR = 3600
BERLIN, SHANGHAI = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai")


def calendar(*weekly: str, holidays: str | None = None) -> Calendar:
    return Calendar.model_validate({"weekly": list(weekly), "holidays": holidays})


def at(text: str, zone: ZoneInfo, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp())


def within(found: tuple[tuple[int, int], ...], zone: ZoneInfo) -> list[str]:
    return [
        f"{datetime.fromtimestamp(t0, zone):%m-%d %H:%M} {datetime.fromtimestamp(t1, zone):%m-%d %H:%M}"
        for t0, t1 in found
    ]


NIGHT = calendar("Mon-Sun 22:00-06:00")


@pytest.mark.parametrize(
    ("evening", "hours"), [("2026-06-10", 8), ("2026-10-24", 9), ("2027-03-27", 7), ("2026-12-31", 8)]
)
def test_a_night_is_as_long_as_the_clock_change_makes_it(evening: str, hours: int) -> None:
    start = at(f"{evening}T22:00", BERLIN)
    noon = at(f"{evening}T12:00", BERLIN)
    assert windows(NIGHT, BERLIN, noon, noon + 24 * HOUR) == ((start, start + hours * HOUR),)


def test_a_night_is_open_after_midnight() -> None:
    two = at("2026-06-11T02:00", BERLIN)
    assert windows(NIGHT, BERLIN, two, two + 1) == ((two, two + 1),)
    six = at("2026-06-11T06:00", BERLIN)
    assert windows(NIGHT, BERLIN, six, six + 1) == ()


@pytest.mark.parametrize(("sunday", "hours"), [("2026-10-25", 25), ("2027-03-28", 23), ("2026-06-14", 24)])
def test_a_whole_day_has_23_24_or_25_hours(sunday: str, hours: int) -> None:
    start = at(f"{sunday}T00:00", BERLIN)
    found = windows(calendar("Sun 00:00-24:00"), BERLIN, start - 24 * HOUR, start + 48 * HOUR)
    assert found == ((start, start + hours * HOUR),)


def test_a_time_in_a_gap_is_the_first_instant_after_it() -> None:
    noon = at("2027-03-27T12:00", BERLIN)
    found = windows(calendar("Sun 02:30-04:00"), BERLIN, noon, noon + 24 * HOUR)
    assert found == ((at("2027-03-28T03:00", BERLIN), at("2027-03-28T04:00", BERLIN)),)
    found = windows(calendar("Sun 01:00-02:30"), BERLIN, noon, noon + 24 * HOUR)
    assert found == ((at("2027-03-28T01:00", BERLIN), at("2027-03-28T03:00", BERLIN)),)


def test_an_interval_inside_a_gap_drops_out() -> None:
    noon = at("2027-03-27T12:00", BERLIN)
    assert windows(calendar("Sun 02:10-02:50"), BERLIN, noon, noon + 24 * HOUR) == ()


def test_a_day_that_a_country_skipped_has_no_window() -> None:
    apia = ZoneInfo("Pacific/Apia")  # there was no 2011-12-30, a Friday
    start = at("2011-12-29T12:00", apia)
    assert windows(calendar("Fri 00:00-24:00"), apia, start, start + 48 * HOUR) == ()


def test_an_ambiguous_start_is_the_first_and_an_ambiguous_end_the_second() -> None:
    noon = at("2026-10-24T12:00", BERLIN)
    found = windows(calendar("Sun 02:15-02:45"), BERLIN, noon, noon + 24 * HOUR)
    assert found == ((at("2026-10-25T02:15", BERLIN, 0), at("2026-10-25T02:45", BERLIN, 1)),)
    assert found[0][1] - found[0][0] == HOUR + HOUR // 2


def test_a_weekday_names_the_day_an_interval_starts() -> None:
    start = at("2026-06-08T00:00", BERLIN)  # a Monday
    found = windows(calendar("Fri 20:00-08:00"), BERLIN, start, start + 7 * 24 * HOUR)
    assert within(found, BERLIN) == ["06-12 20:00 06-13 08:00"]


def test_overlapping_and_touching_intervals_are_one_window() -> None:
    start = at("2026-06-08T12:00", BERLIN)
    found = windows(
        calendar("Mon-Sun 20:00-08:00", "Sat-Sun 00:00-24:00"), BERLIN, start, start + 7 * 24 * HOUR
    )
    assert within(found, BERLIN) == [
        "06-08 20:00 06-09 08:00",
        "06-09 20:00 06-10 08:00",
        "06-10 20:00 06-11 08:00",
        "06-11 20:00 06-12 08:00",
        "06-12 20:00 06-15 08:00",
    ]


def test_a_calendar_that_never_closes_is_one_window() -> None:
    start = at("2026-10-01T00:00", BERLIN)
    until = start + 60 * 24 * HOUR
    assert windows(calendar("Mon-Sun 00:00-24:00"), BERLIN, start, until) == ((start, until),)


def test_a_holiday_counts_as_sunday_and_a_make_up_working_day_as_monday() -> None:
    # Spring Festival 2025: Sunday 26 January is worked; 28 January (Tuesday) to 4 February is off;
    # Saturday 8 February is worked.
    weekends = calendar("Sat-Sun 00:00-24:00", holidays="CN")
    start, until = at("2025-01-24T00:00", SHANGHAI), at("2025-02-10T00:00", SHANGHAI)
    assert within(windows(weekends, SHANGHAI, start, until), SHANGHAI) == [
        "01-25 00:00 01-26 00:00",
        "01-28 00:00 02-05 00:00",
        "02-09 00:00 02-10 00:00",
    ]
    mondays = calendar("Mon 09:00-17:00", holidays="CN")
    assert within(windows(mondays, SHANGHAI, start, until), SHANGHAI) == [
        "01-26 09:00 01-26 17:00",
        "01-27 09:00 01-27 17:00",
        "02-08 09:00 02-08 17:00",
    ]


def test_holidays_of_a_region() -> None:
    sundays = {"BY": "DE-BY", "BE": "DE-BE"}
    epiphany = at("2026-01-06T00:00", BERLIN)  # a Tuesday, a holiday in Bavaria only
    found = {
        short: windows(calendar("Sun 00:00-24:00", holidays=region), BERLIN, epiphany, epiphany + 24 * HOUR)
        for short, region in sundays.items()
    }
    assert found == {"BY": ((epiphany, epiphany + 24 * HOUR),), "BE": ()}


def test_without_holidays_named_there_are_none() -> None:
    new_year = at("2026-01-01T00:00", BERLIN)  # a Thursday
    assert windows(calendar("Sun 00:00-24:00"), BERLIN, new_year, new_year + 24 * HOUR) == ()


# A slow, independent reading of the rules: look at the local clock every minute.

ZONES = {
    "Europe/Berlin": ["2026-10-25", "2027-03-28"],
    "America/New_York": ["2026-11-01", "2026-03-08"],
    "America/Havana": ["2026-11-01", "2026-03-08"],  # the clock changes at midnight
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],  # by half an hour
    "Pacific/Apia": ["2011-12-30"],  # a day left out
    "Asia/Kathmandu": ["2026-05-05"],  # UTC+05:45, no changes
}
TIMES = st.integers(0, 24 * 4).map(lambda quarter: quarter * 15)


def clock_of(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def slowly(
    days: frozenset[int], start: int, end: int, zone: ZoneInfo, day: date, first: int, until: int
) -> set[int]:
    clock = [
        (t, datetime.fromtimestamp(t, zone).replace(tzinfo=None, fold=0)) for t in range(first, until, 60)
    ]

    def instant(local: datetime, which: int) -> int:
        exact = [t for t, shown in clock if shown == local]
        return exact[which] if exact else min(t for t, shown in clock if shown > local)

    minutes: set[int] = set()
    for offset in (-2, -1, 0, 1, 2):
        here = day + timedelta(days=offset)
        if here.weekday() in days:
            midnight = datetime(here.year, here.month, here.day)
            ends = midnight + timedelta(minutes=end, days=end <= start)
            minutes |= set(range(instant(midnight + timedelta(minutes=start), 0), instant(ends, -1), 60))
    return minutes


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(zone, day) for zone, days in ZONES.items() for day in days]),
    st.sets(st.integers(0, 6), min_size=1),
    TIMES,
    TIMES,
)
def test_windows_are_what_the_local_clock_shows(
    place: tuple[str, str], days: set[int], start: int, end: int
) -> None:
    if start == end or start == 24 * 60:
        return
    zone, day = ZoneInfo(place[0]), date.fromisoformat(place[1])
    text = f"{','.join(DAYS[d] for d in sorted(days))} {clock_of(start)}-{clock_of(end)}"
    noon = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp())
    expected = slowly(frozenset(days), start, end, zone, day, noon - 108 * HOUR, noon + 108 * HOUR)
    span = noon - 24 * HOUR, noon + 24 * HOUR
    found = windows(calendar(text), zone, *span)
    inside = {t for t0, t1 in found for t in range(t0, t1, 60)}
    assert inside == {t for t in expected if span[0] <= t < span[1]}


RULES = st.lists(
    st.builds(
        lambda first, last, start, length: (
            f"{DAYS[first]}-{DAYS[last]} {clock_of(start)}-{clock_of((start + length) % 1440)}"
        ),
        st.integers(0, 6),
        st.integers(0, 6),
        st.integers(0, 1439),
        st.integers(1, 1439),
    ),
    min_size=1,
    max_size=3,
)
INSTANTS = st.integers(at("2020-01-01T00:00", BERLIN), at("2035-01-01T00:00", BERLIN))
SPANS = st.integers(0, 20 * 24 * HOUR)


@settings(max_examples=60, deadline=None)
@given(RULES, st.sampled_from(sorted(ZONES)), st.sampled_from([None, "CN", "US"]), INSTANTS, SPANS, SPANS)
def test_windows_are_sorted_disjoint_inside_the_span_and_the_same_however_it_is_cut(
    rules: list[str], zone: str, holidays: str | None, start: int, one: int, two: int
) -> None:
    some, place = calendar(*rules, holidays=holidays), ZoneInfo(zone)
    middle, until = start + one, start + one + two
    whole = windows(some, place, start, until)
    edges = [t for window in whole for t in window]
    assert edges == sorted(set(edges))
    assert all(start <= t <= until for t in edges)
    parts = [*windows(some, place, start, middle), *windows(some, place, middle, until)]
    cut = [
        piece
        for t0, t1 in whole
        for piece in ((t0, min(t1, middle)), (max(t0, middle), t1))
        if piece[0] < piece[1]
    ]
    assert parts == cut
