"""What follows a stop for others: how long the work rests, and when it is held instead.

Owns: the back-off and the count of stops without progress. Never: who is stopped (see `stopping`).
"""

from __future__ import annotations

from jupyter_gpupool.scheduler.model import Seconds

FIRST, LONGEST = 60, 1800
MOST_IN_VAIN = 2
"""Work that was stopped so often in a row without progress is held."""


def back_off(stops: int) -> Seconds:
    """Return how long work rests after its n-th stop: a minute, doubled each time, at most half an hour."""
    return LONGEST if stops > 5 else FIRST << max(0, stops - 1)


def stops_in_vain(before: int, ran: Seconds, min_run_time: Seconds, *, progress: bool) -> int:
    """Return how many stops in a row came without progress, with one after a run of `ran` seconds.

    A run shorter than `min_run_time` that made none does not count.
    """
    if progress:
        return 0
    return before + (ran >= min_run_time)
