"""The periods of budgets: weeks, months, quarters and years of a time zone.

Owns: when the present one began, and when it and those that follow end. Never: the present moment itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

PeriodKind: TypeAlias = Literal["week", "month", "quarter", "year"]
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True)
class Period:
    """A period that began at `start`, and the `ends` of it and of those that follow (UTC seconds)."""

    start: int
    ends: tuple[int, ...]


def period(kind: PeriodKind, zone: ZoneInfo, now: int, until: int) -> Period:
    """Return the period that `now` is in, with the ends up to the first one not before `until`.

    A week begins on Monday, a quarter in January, April, July or October; each at the first instant of its
    first day.
    """
    first = _first_day(kind, datetime.fromtimestamp(now, zone).date())
    ends = []
    for day in _following(kind, first):
        ends.append(_begins(day, zone))
        if ends[-1] >= until and ends[-1] > now:
            return Period(_begins(first, zone), tuple(ends))
    raise AssertionError("there is always a next period")


def _first_day(kind: PeriodKind, day: date) -> date:
    if kind == "week":
        return day - timedelta(days=day.weekday())
    months = _MONTHS[kind]
    return date(day.year, (day.month - 1) // months * months + 1, 1)


def _following(kind: PeriodKind, first: date) -> Iterator[date]:
    while True:
        if kind == "week":
            first += timedelta(days=7)
        else:
            years, month = divmod(first.month - 1 + _MONTHS[kind], 12)
            first = date(first.year + years, month + 1, 1)
        yield first


def _begins(day: date, zone: ZoneInfo) -> int:
    """Return the first instant of a local day (where midnight is skipped, the offset before gives it)."""
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())
