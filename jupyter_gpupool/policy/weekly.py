"""How a weekly interval of a calendar is written: ``Mon-Fri 20:00-08:00``.

Owns: the text and its days and minutes. Never: dates, zones, or holidays (see `calendar`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jupyter_gpupool.policy.units import UnitError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONDAY, SUNDAY = 0, 6
MINUTES = 24 * 60

_FORM = "Write days and times such as Mon-Fri 20:00-08:00 or Sat,Sun 00:00-24:00."
_RULE = re.compile(r"(?P<days>\S+)\s+(?P<start>\d{1,2}:\d\d)\s*-\s*(?P<end>\d{1,2}:\d\d)")


@dataclass(frozen=True, slots=True)
class Weekly:
    """One interval that starts on each of `days`.

    `start` and `end` are minutes after that day's local midnight; `end` lies on the next day
    when it is not after `start`.
    """

    days: frozenset[int]
    start: int
    end: int
    text: str

    @property
    def ends_next_day(self) -> bool:
        """Whether the interval crosses midnight."""
        return self.end <= self.start


def parse_weekly(text: object) -> Weekly:
    """Return the interval that `text` describes.

    Raises
    ------
    UnitError
        The form, a day or a time cannot be understood.
    """
    written = str(text).strip()
    match = _RULE.fullmatch(written)
    if match is None:
        raise UnitError(f'"{written}" is not a weekly interval.', _FORM)
    start, end = _minutes(match["start"]), _minutes(match["end"])
    if start == MINUTES:
        raise UnitError(f'"{written}" starts at 24:00.', "Write 00:00 and name the next day.")
    if start == end:
        raise UnitError(
            f'"{written}" starts and ends at the same time.', "Write 00:00-24:00 for a whole day."
        )
    return Weekly(_days(match["days"]), start, end, written)


def _minutes(clock: str) -> int:
    hours, minutes = map(int, clock.split(":"))
    if minutes > 59 or hours * 60 + minutes > MINUTES:
        raise UnitError(f'"{clock}" is not a time of day.', "Write 00:00 to 24:00.")
    return hours * 60 + minutes


def _days(text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, end = _day(first), _day(last or first)
        days.update((start + i) % 7 for i in range((end - start) % 7 + 1))
    return frozenset(days)


def _day(name: str) -> int:
    if name not in DAYS:
        raise UnitError(f'"{name}" is not a day.', f"Write one of {', '.join(DAYS)}.")
    return DAYS.index(name)
