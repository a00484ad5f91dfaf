"""When what runs is expected to leave.

Owns: the end of a lease as a plan counts on it: its hard end, the end of its grace once it was asked to
stop, the hand-back of a lent card. Never: who is asked (see `stopping`).
"""

from __future__ import annotations

from jupyter_gpupool.scheduler.lending import lenders
from jupyter_gpupool.scheduler.model import Kind, Lease, Seconds, Snapshot
from jupyter_gpupool.scheduler.timeline import FOREVER


class Ends:
    """The expected ends in one snapshot."""

    def __init__(self, snapshot: Snapshot, now: Seconds) -> None:
        self._now = now
        self._lenders = lenders(snapshot)

    def turn_to(self, now: Seconds) -> None:
        """Go on to a later moment of the same pool."""
        self._now = now

    def lent(self, kind: Kind, partition: str) -> bool:
        """Say whether work of `kind` is on a lent card in `partition`."""
        return kind == "job" and partition in self._lenders

    def hand_back(self, partition: str, time: Seconds) -> Seconds | None:
        """Return when a job on a lent card of `partition` at `time` must leave: the next window's end."""
        lender = self._lenders.get(partition)
        back = FOREVER if lender is None else lender.hand_back(time)
        return None if back == FOREVER else back

    def of(self, lease: Lease) -> Seconds:
        """Return when a lease is expected to end; one past its end is expected to end at once."""
        return max(self.due(lease), self._now + 1)

    def due(self, lease: Lease) -> Seconds:
        """Return when a lease is to end at the latest, be that past."""
        end = lease.end
        if lease.asked is not None:
            end = min(end, lease.asked + lease.grace)
        if self._lenders and self.lent(lease.kind, lease.placement.partition):
            back = self.hand_back(lease.placement.partition, lease.start)
            end = end if back is None else min(end, back)
        return end
