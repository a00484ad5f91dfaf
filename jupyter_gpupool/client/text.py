"""Words and columns: amounts, times and tables as people read them.

Owns: pure functions of values; the clock and the time zone are parameters. Never: what a reply of the
service means.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo

WIDTH = 110
GAP = "  "
MIN_LAST_COLUMN = 24


@dataclass(frozen=True)
class Clock:
    """Now, in seconds since the epoch, and the time zone to show (None: this machine's)."""

    now: float = field(default_factory=time.time)
    zone: tzinfo | None = None

    def local(self, seconds: float) -> datetime:
        """Return a moment in the zone shown."""
        return datetime.fromtimestamp(seconds, timezone.utc).astimezone(self.zone)


def seconds_of(iso: str) -> float:
    """Return an ISO 8601 time as seconds since the epoch; without a zone it is UTC."""
    moment = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def when(iso: str | None, clock: Clock | None = None) -> str:
    """Write a moment: ``14:32`` today, ``Tue 14:32`` within six days, else with the date."""
    if iso is None:
        return ""
    clock = clock or Clock()
    moment, today = clock.local(seconds_of(iso)), clock.local(clock.now)
    days = abs((moment.date() - today.date()).days)
    if days == 0:
        return f"{moment:%H:%M}"
    if days < 6:
        return f"{moment:%a %H:%M}"
    year = f" {moment.year}" if moment.year != today.year else ""
    return f"{moment.day} {moment:%b}{year} {moment:%H:%M}"


def relative(iso: str, clock: Clock | None = None) -> str:
    """Write how far away a moment is: ``in 12 min``, ``2 h 30 min ago``, ``now``."""
    clock = clock or Clock()
    distance = seconds_of(iso) - clock.now
    if abs(distance) < 1:
        return "now"
    text = duration(abs(distance), parts=2 if 3600 <= abs(distance) < 86400 else 1)
    return f"in {text}" if distance > 0 else f"{text} ago"


def duration(seconds: float, *, parts: int = 2) -> str:
    """Write a length of time in its one or two largest units: ``1 h 30 min``."""
    left = _rounded(max(0, round(seconds)), parts)
    words: list[str] = []
    for unit, length in _LENGTHS:
        count, left = divmod(left, length)
        if count:
            words.append(f"{count} {unit}")
        elif words:
            break
        if len(words) == parts:
            break
    return " ".join(words) or "0 s"


_LENGTHS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def _rounded(seconds: int, parts: int) -> int:
    """Round to the smallest unit that is written."""
    lengths = [length for _, length in _LENGTHS if seconds >= length] or [1]
    length = lengths[min(parts, len(lengths)) - 1]
    return (seconds + length // 2) // length * length


def memory(mib: int) -> str:
    """Write MiB: ``512 MiB``, ``1.5 GiB``, ``32 GiB``."""
    return f"{mib} MiB" if mib < 1024 else f"{_trimmed(mib / 1024)} GiB"


def thousandths(milli: int) -> str:
    """Write thousandths of a GPU or a core: ``6``, ``0.125``."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def plural(count: int, one: str, many: str | None = None) -> str:
    """Write a number with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(fraction: float) -> str:
    """Write a part of 1."""
    return f"{round(100 * max(0.0, min(1.0, fraction)))} %"


def sentence(text: str) -> str:
    """Begin with a capital letter and end with a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")


def plain(text: str) -> str:
    """Make visible what would steer a terminal: control characters, and those that turn the reading order."""
    return text.translate(_STEERING)


_STEERING = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {*b"\t\n"},
    "\N{REPLACEMENT CHARACTER}",
)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return an aligned table; a title that begins with ``#`` makes a column of numbers, on the right.

    Columns that are empty in every row are left out; the last one wraps at `WIDTH` characters.
    """
    cells = [[str(cell).replace("\n", " ") for cell in row] for row in rows]
    shown = [place for place in range(len(columns)) if any(row[place] for row in cells)]
    if not shown:
        return []
    titles = [columns[place].lstrip("#").upper() for place in shown]
    right = [columns[place].startswith("#") for place in shown]
    cells = [[row[place] for place in shown] for row in cells]
    widths = [max(map(len, column)) for column in zip(titles, *cells)]
    lines: list[str] = []
    for row in [titles, *cells]:
        lines += _row(row, widths, right)
    return lines


def pairs(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and values in two aligned columns, without those that have no value."""
    known = [(name, value) for name, value in rows if value]
    if not known:
        return []
    longest = max(len(name) for name, _ in known)
    lines: list[str] = []
    for name, value in known:
        lines += _row([name, value], [longest, 0], [False, False])
    return lines


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """Lay one row out; what does not fit in the last column goes on below it."""
    lead = GAP.join(
        cell.rjust(size) if to_right else cell.ljust(size)
        for cell, size, to_right in zip(cells[:-1], widths, right)
    )
    lead += GAP if lead else ""
    last = cells[-1].rjust(widths[-1]) if right[-1] else cells[-1]
    room = max(MIN_LAST_COLUMN, WIDTH - len(lead))
    wrapped = textwrap.wrap(last, room, break_on_hyphens=False) or [""] if len(last) > room else [last]
    return [(lead + wrapped[0]).rstrip(), *(" " * len(lead) + line for line in wrapped[1:])]


def _trimmed(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")
