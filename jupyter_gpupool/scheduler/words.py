"""Numbers as people read them: amounts, sizes, durations, times."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from jupyter_gpupool.scheduler.model import Mib, Seconds
from jupyter_gpupool.scheduler.quota import CPUS, GPU, MEMORY


def amount_text(resource: str, value: int) -> str:
    """Write an amount of a resource: ``6 cards``, ``0.125 card``, ``40 CPU cores``, ``512 GiB of memory``."""
    if resource == CPUS:
        return f"{decimal(value)} CPU core{'' if value == 1000 else 's'}"
    if resource == MEMORY:
        return f"{size_text(value)} of memory"
    type_ = resource.removeprefix(GPU).removeprefix(".")
    noun = "card" if 0 < value <= 1000 else "cards"
    return f"{decimal(value)} {type_ + ' ' if type_ else ''}{noun}"


def decimal(milli: int) -> str:
    """Write thousandths as a decimal number: 1500 is ``1.5``, -250 is ``-0.25``."""
    whole, rest = divmod(abs(milli), 1000)
    text = f"{whole}.{rest:03}".rstrip("0").rstrip(".")
    return f"-{text}" if milli < 0 else text


def size_text(mib: Mib) -> str:
    """Write a size: whole GiB where it is one, else MiB."""
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def duration_text(seconds: Seconds) -> str:
    """Write a duration in the form that options take: ``3d``, ``1h30m``, ``45s``."""
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def time_text(time: Seconds, now: Seconds, zone: tzinfo = UTC) -> str:
    """Write a time as the clocks of `zone` show it, with its date unless it is today's (of `now`)."""
    moment = datetime.fromtimestamp(time, zone)
    same_day = datetime.fromtimestamp(now, zone).date() == moment.date()
    return moment.strftime("%H:%M %Z" if same_day else "%H:%M %Z on %d %b")


def counted(number: int, thing: str) -> str:
    """Return a count with its noun: ``1 job``, ``2 jobs``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
