"""Calendars as intervals of UTC.

Owns: the rules of local days: across midnight, 24:00, clock changes, holidays.
Never: the present moment; the span comes in.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from jupyter_gpupool.policy.model import Calendar


def windows(calendar: Calendar, zone: ZoneInfo, start: int, until: int) -> tuple[tuple[int, int], ...]:
    """Return the calendar's windows inside [start, until): sorted, disjoint, in UTC seconds."""
    return ()
