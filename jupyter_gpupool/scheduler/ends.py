"""When what runs is expected to leave.

Owns: the end of a lease as a plan counts on it: its hard end, the end of its grace once it was asked to
stop, the hand-back of a lent card. Never: who is asked (see `stopping`).
"""

from __future__ import annotations

from bisect import bisect_right

from jupyter_gpupool.scheduler.model import Kind, Lease, Seconds, Snapshot


class Ends:
    """The expected ends in one snapshot."""

    def __init__(self, snapshot: Snapshot, now: Seconds) -> None:
        self._now = now
        self._windows = snapshot.windows
        self._lending = {
            name: partition.lend
            for name, partition in snapshot.partitions.items()
            if partition.lend is not None and "job" not in partition.kinds
        }

    def lent(self, kind: Kind, partition: str) -> bool:
        """Say whether work of `kind` is on a lent card in `partition`."""
        return kind == "job" and partition in self._lending

    def hand_back(self, partition: str, time: Seconds) -> Seconds | None:
        """Return when a job on a lent card of `partition` at `time` must leave: the next window's end."""
        lend = self._lending.get(partition)
        if lend is None:
            return None
        windows = self._windows.get(lend.window, ())
        following = bisect_right(windows, time, key=lambda window: window[1])
        return windows[following][1] if following < len(windows) else None

    def of(self, lease: Lease) -> Seconds:
        """Return when a lease is expected to end; one past its end is expected to end at once."""
        end = lease.end
        if lease.asked is not None:
            end = min(end, lease.asked + lease.grace)
        if self.lent(lease.kind, lease.placement.partition):
            back = self.hand_back(lease.placement.partition, max(lease.start, self._now))
            end = end if back is None else min(end, back)
        return max(end, self._now + 1)
