"""Periods that people ask about, and moments that they name, in the site's own time.

Owns: reading them. Never: the present; it comes in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from jupyter_gpupool.policy.calendar import instant
from jupyter_gpupool.service.errors import ApiError, invalid

_WEEK = re.compile(r"(\d{4})-W(\d{1,2})")
_MONTH = re.compile(r"(\d{4})-(\d{1,2})")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
SOON_S = 60
"""By so much another machine's clock may be ahead."""


def period(query: Mapping[str, Any], zone: ZoneInfo, now: int) -> tuple[int, int]:
    """Return the beginning and end of the week, the month or the last days that a query names.

    Raises
    ------
    ApiError
        It names none, or two.
    """
    week, month = query.get("week"), query.get("month")
    today = datetime.fromtimestamp(now, zone).date()
    if week and month:
        raise invalid("A report is of a week or of a month.", "Leave one of them out.")
    if week:
        first = _first_of_week(week, today)
        last = first + timedelta(days=7)
    elif month:
        first = _first_of_month(month, today)
        last = (first + timedelta(days=31)).replace(day=1)
    else:
        first, last = today - timedelta(days=query["days"] - 1), today + timedelta(days=1)
    since, until = _midnight(first, zone), _midnight(last, zone)
    if since > now:
        raise invalid(f"{week or month} is still to come.", "Name one that has begun.")
    return since, until


def moment(text: str, zone: ZoneInfo, now: int) -> int:
    """Return a moment that is over: a date with a time, or a time alone, which is the last one of that day.

    Raises
    ------
    ApiError
        It cannot be read, or is still to come.
    """
    local = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
    try:
        clock = clock_of(text)
        if clock is None:
            seconds = instant_of(text, zone)
        else:
            found = datetime.combine(local, clock)
            seconds = instant(found - timedelta(days=found > local), zone)
    except ValueError:
        raise invalid(f"{text!r} is no time.", 'Write it as "2026-10-12 03:00", or 03:00.') from None
    if seconds > now + SOON_S:
        raise invalid(
            f"{text} is still to come: what will be held then is not known.", "Name a time before now."
        )
    return min(seconds, now)


def clock_of(text: str) -> time | None:
    """Return a time of day written alone (``18:00``); None = it is something else.

    Raises
    ------
    ValueError
        No clock shows it.
    """
    found = _CLOCK.fullmatch(text.strip())
    return time(int(found[1]), int(found[2])) if found else None


def instant_of(text: str, zone: ZoneInfo, *, second: bool = False) -> int:
    """Return the UTC second of a date, or a date with a time, as ISO 8601; without a zone it is the site's.

    Of a local time that there is twice, it is the first, or the `second`.

    Raises
    ------
    ValueError
        It cannot be read, or lies in no year that clocks know.
    """
    moment = datetime.fromisoformat(text.strip())
    _known(moment.date())
    return int(moment.timestamp()) if moment.tzinfo else instant(moment, zone, second=second)


def _first_of_week(text: str, today: date) -> date:
    if text in ("this", "last"):
        return today - timedelta(days=today.weekday() + (7 if text == "last" else 0))
    try:
        if found := _WEEK.fullmatch(text):
            return _known(date.fromisocalendar(int(found[1]), int(found[2]), 1))
        day = _known(date.fromisoformat(text))
        return day - timedelta(days=day.weekday())
    except ValueError:
        raise _no("week", text, "this, last, 2026-W42, or a day of it as 2026-10-12") from None


def _first_of_month(text: str, today: date) -> date:
    if text == "this":
        return today.replace(day=1)
    if text == "last":
        return (today.replace(day=1) - timedelta(days=1)).replace(day=1)
    try:
        if found := _MONTH.fullmatch(text):
            return _known(date(int(found[1]), int(found[2]), 1))
        return _known(date.fromisoformat(text)).replace(day=1)
    except ValueError:
        raise _no("month", text, "this, last, or 2026-10") from None


def _known(day: date) -> date:
    """Return a day of the years that clocks know."""
    if not 1970 < day.year < 9999:
        raise ValueError(day)
    return day


def _no(what: str, text: str, forms: str) -> ApiError:
    return invalid(f"{text!r} is no {what}.", f"Write {forms}.")


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime.combine(day, time(), zone).timestamp())
