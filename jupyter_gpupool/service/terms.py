"""From when until when something is granted, as people write it.

Owns: reading a start and an end. Never: the present; it comes in.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from jupyter_gpupool.policy.calendar import instant
from jupyter_gpupool.policy.units import UnitError, format_duration, parse_duration
from jupyter_gpupool.service.errors import ApiError, invalid
from jupyter_gpupool.service.periods import clock_of, instant_of

LONGEST_S = 366 * 86400
SLACK_S = 300
"""By so much a start may lie back: while somebody types, time passes."""
_DURATION = re.compile(r"\+?((?:\d+[dhms])+)")


def term(start: str | None, until: str, zone: ZoneInfo, now: int) -> tuple[int, int]:
    """Return the seconds over which a grant holds.

    Parameters
    ----------
    start
        A date, a date with a time, the next time of day (``18:00``), or a duration from now; None = now.
    until
        Likewise; a duration and a time of day count from the start. A date is its first instant, in `zone`.

    Raises
    ------
    ApiError
        One of them cannot be read or is over, or the end does not come after the start, or not in a year.
    """
    begins = now if start is None else max(now, _moment("start", start, zone, now))
    if start is not None and _moment("start", start, zone, now) < now - SLACK_S:
        raise invalid(f"start {start} is over.", "Leave it out to begin now.")
    ends = _moment("until", until, zone, begins)
    if ends <= begins:
        raise invalid(
            f"until {until} does not come after the start, {_text(begins, zone)}.", "Write a later end."
        )
    if ends > now + LONGEST_S:
        raise invalid(
            f"until {until} is too far away: whatever is granted ends within {format_duration(LONGEST_S)}.",
            "Write an earlier end, and grant it again when that comes.",
        )
    return begins, ends


def is_duration(text: str) -> bool:
    """Whether an end of a term is written as a length of time."""
    return _DURATION.fullmatch(text.strip()) is not None


def _moment(what: str, text: str, zone: ZoneInfo, base: int) -> int:
    written = text.strip()
    try:
        if found := _DURATION.fullmatch(written):
            return base + parse_duration(found[1], what=what)
        clock = clock_of(written)
        if clock is None:
            return instant_of(written, zone, second=what == "until")
        local = datetime.fromtimestamp(base, zone).replace(tzinfo=None)
        today = datetime.combine(local, clock)
        return instant(today + timedelta(days=today <= local), zone, second=what == "until")
    except UnitError as error:
        raise invalid(error.message, error.remedy) from None
    except ValueError:
        raise _unreadable(what, text) from None


def _unreadable(what: str, text: str) -> ApiError:
    return invalid(
        f"{what} {text!r} is no time.",
        'Write a date (2026-07-01), a date with a time ("2026-07-01 18:00"), a time (18:00), or 3d.',
    )


def _text(seconds: int, zone: ZoneInfo) -> str:
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M %Z")
