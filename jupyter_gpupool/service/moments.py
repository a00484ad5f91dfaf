"""Times on the wire.

Owns: their one form, ISO 8601 in UTC with Z, in whole seconds. Never: a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime


def iso(seconds: float | None) -> str | None:
    """Return Unix seconds as text; None stays None.

    >>> iso(0)
    '1970-01-01T00:00:00Z'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
