"""Calendars as intervals of UTC.

Owns: the rules of local days: across midnight, 24:00, clock changes, holidays. A time in a gap
means the first instant after it; an ambiguous start is the first, an ambiguous end the second.
Never: the present moment; the span comes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from jupyter_gpupool.policy.daysoff import days_off
from jupyter_gpupool.policy.model import Calendar
from jupyter_gpupool.policy.weekly import MONDAY, SUNDAY

Window = tuple[int, int]

_FIRST, _SECOND = 0, 1  # which of two equal local times (PEP 495's fold)


def windows(calendar: Calendar, zone: ZoneInfo, start: int, until: int) -> tuple[Window, ...]:
    """Return what of the calendar lies inside [start, until).

    Returns
    -------
    tuple of (int, int)
        UTC seconds; sorted and disjoint: overlapping or touching intervals are one window. A window
        that reaches over an end of the span is cut there.
    """
    if until <= start:
        return ()
    first = datetime.fromtimestamp(start, zone).date() - timedelta(days=1)
    last = datetime.fromtimestamp(until, zone).date()
    days = (first + timedelta(days=n) for n in range((last - first).days + 1))
    cut = ((max(t0, start), min(t1, until)) for day in days for t0, t1 in _of_day(calendar, zone, day))
    return _merged((t0, t1) for t0, t1 in cut if t0 < t1)


def _of_day(calendar: Calendar, zone: ZoneInfo, day: date) -> Iterator[Window]:
    """Yield the intervals that start on a local day."""
    weekday = _counts_as(calendar, day)
    for rule in calendar.weekly:
        if weekday in rule.days:
            midnight = datetime(day.year, day.month, day.day)
            start = midnight + timedelta(minutes=rule.start)
            end = midnight + timedelta(days=rule.ends_next_day, minutes=rule.end)
            yield instant(start, zone), instant(end, zone, second=True)


def _counts_as(calendar: Calendar, day: date) -> int:
    """Return the weekday that a date counts as."""
    if calendar.holidays is not None:
        special = days_off(calendar.holidays, day.year)
        if day in special.working:
            return MONDAY
        if day in special.off:
            return SUNDAY
    return day.weekday()


def instant(local: datetime, zone: ZoneInfo, *, second: bool = False) -> int:
    """Return the UTC second at which the clocks of a zone show `local`: the first time, or the second."""
    local = local.replace(microsecond=0)
    found = _utc(local, zone, _SECOND if second else _FIRST)
    if datetime.fromtimestamp(found, zone).replace(tzinfo=None, fold=0) == local:
        return found
    return _end_of_gap(local, zone)


def _end_of_gap(local: datetime, zone: ZoneInfo) -> int:
    """Return the first instant after the gap that has no `local` time.

    The clock's offset before the gap reads `local` as a time after the change, the offset
    after it as a time before: the change lies between.
    """
    before, after = _utc(local, zone, _SECOND), _utc(local, zone, _FIRST)
    offset = datetime.fromtimestamp(after, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after


def _utc(local: datetime, zone: ZoneInfo, fold: int) -> int:
    return int(local.replace(tzinfo=zone, fold=fold).timestamp())


def _merged(intervals: Iterable[Window]) -> tuple[Window, ...]:
    found: list[Window] = []
    for t0, t1 in sorted(intervals):
        if found and t0 <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], t1))
        else:
            found.append((t0, t1))
    return tuple(found)
