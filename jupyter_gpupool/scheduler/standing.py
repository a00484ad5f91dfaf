"""What stays as it is from one fast pass to the next.

Owns: what groups own, and the machines with the leases on them; both are made anew for another pool.
Never: a decision: a pass decides the same without it.
"""

from __future__ import annotations

from jupyter_gpupool.scheduler.estate import Estate
from jupyter_gpupool.scheduler.floor import Floor
from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.model import Seconds, Snapshot


class Standing:
    """The last pass of one caller; for one pass at a time, each of a snapshot of the same pool."""

    def __init__(self) -> None:
        self._estate: Estate | None = None
        self._floor: Floor | None = None

    def limits(self, snapshot: Snapshot, now: Seconds) -> Limits:
        """Return the caps of a snapshot."""
        limits = Limits(snapshot, now, self._estate)
        self._estate = limits.estate
        return limits

    def floor(self, snapshot: Snapshot, now: Seconds, limits: Limits) -> Floor:
        """Return the machines of a snapshot, with its leases."""
        floor = self._floor
        if floor is None or not floor.serves_also(snapshot, limits.resources, now):
            floor = self._floor = Floor(snapshot, now, limits.resources)
        floor.turn_to(snapshot, now, limits.end_of)
        return floor
