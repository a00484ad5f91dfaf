"""Public holidays and make-up working days of a country or one of its regions.

Owns: the only use of the `holidays` package, imported when a calendar first names a region.
Never: what a holiday means for a window (see `calendar`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class DaysOff:
    """The holidays of one year, and the weekend days on which people work instead."""

    off: frozenset[date]
    working: frozenset[date]


@lru_cache(maxsize=256)
def days_off(region: str, year: int) -> DaysOff:
    """Return the special days of `region` (``CN``, ``DE-BY``) in `year`.

    Raises
    ------
    NotImplementedError
        The region is not known.
    """
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    found = country_holidays(country, subdiv=subdivision or None, years=year)
    working: frozenset[date] = getattr(found, "weekend_workdays", frozenset())
    return DaysOff(
        off=frozenset(day for day in found if day.year == year),
        working=frozenset(day for day in working if day.year == year),
    )


def is_region(region: str) -> bool:
    """Whether the holidays of `region` are known."""
    try:
        days_off(region, 2026)
    except NotImplementedError:
        return False
    return True
