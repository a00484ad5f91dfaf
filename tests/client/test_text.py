"""Moments, distances, amounts and tables, as people read them."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.client import text
from jupyter_gpupool.client.text import (
    WIDTH,
    Clock,
    duration,
    memory,
    plain,
    relative,
    seconds_of,
    table,
    thousandths,
    when,
)

NOW = "2026-10-20T12:00:00Z"  # a Tuesday
CLOCK = Clock(seconds_of(NOW), UTC)


@pytest.mark.parametrize(
    ("iso", "shown"),
    [
        ("2026-10-20T08:05:00Z", "08:05"),
        ("2026-10-20T23:59:00Z", "23:59"),
        ("2026-10-21T08:05:00Z", "Wed 08:05"),
        ("2026-10-15T08:05:00Z", "Thu 08:05"),
        ("2026-10-14T08:05:00Z", "14 Oct 08:05"),
        ("2026-10-27T08:05:00Z", "27 Oct 08:05"),
        ("2027-01-02T03:04:00Z", "2 Jan 2027 03:04"),
        (None, ""),
    ],
)
def test_moments_say_the_day_when_it_is_not_today(iso, shown):
    assert when(iso, CLOCK) == shown


def test_moments_are_shown_in_the_local_zone():
    berlin = Clock(seconds_of(NOW), ZoneInfo("Europe/Berlin"))
    assert when("2026-10-20T22:30:00Z", berlin) == "Wed 00:30"
    assert when("2026-10-26T12:00:00Z", berlin) == "26 Oct 13:00"  # winter time by then


@pytest.mark.parametrize(
    ("iso", "shown"),
    [
        ("2026-10-20T12:12:10Z", "in 12 min"),
        ("2026-10-20T12:00:20Z", "in 20 s"),
        ("2026-10-20T14:32:00Z", "in 2 h 32 min"),
        ("2026-10-20T12:59:59Z", "in 1 h"),
        ("2026-10-19T09:00:00Z", "1 d ago"),
        (NOW, "now"),
    ],
)
def test_distances(iso, shown):
    assert relative(iso, CLOCK) == shown


def test_amounts():
    assert [duration(s) for s in (0, 59, 60, 5400, 28800, 90061, 259200)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h 30 min",
        "8 h",
        "1 d 1 h",
        "3 d",
    ]
    assert [memory(mib) for mib in (512, 1536, 32768)] == ["512 MiB", "1.5 GiB", "32 GiB"]
    assert [thousandths(milli) for milli in (6000, 125, 0)] == ["6", "0.125", "0"]
    assert text.sentence("it waits") == "It waits."


@given(st.lists(st.tuples(st.text("ab c", max_size=30), st.text("xy z", max_size=200)), max_size=5))
def test_tables_are_aligned_and_never_too_wide(rows):
    lines = table(("#first", "second"), rows)
    assert all(len(line) <= WIDTH for line in lines if " " in line.strip())
    assert all(line == line.rstrip() for line in lines)


def test_nothing_shown_steers_a_terminal():
    assert plain("\x1b[31mred\r\x00\u202eltr\nnext\tü😀") == "�[31mred���ltr\nnext\tü😀"
    assert table(("name", "state"), [("two\nlines", "queued")])[1] == "two lines  queued"


def test_a_table_leaves_empty_columns_out_and_puts_numbers_right():
    assert table(("#n", "empty", "name"), [("1", "", "a"), ("10", "", "b c")]) == [
        " N  NAME",
        " 1  a",
        "10  b c",
    ]
