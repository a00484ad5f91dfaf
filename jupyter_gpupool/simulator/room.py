"""Which passes would start nothing, seen without making them: most of a long simulation's.

Owns: counts of idle cards, of what is free on shared ones, of what groups hold, and of what waits, kept as
work comes and goes. They give necessary conditions only, those that a fast pass looks at first (the
scheduler's `Shortlist`): when none holds, `fill` does nothing. Never: a decision.
"""

from __future__ import annotations

from collections import Counter

from jupyter_gpupool.frame import Frame
from jupyter_gpupool.scheduler.model import Lease, Mib, Work
from jupyter_gpupool.scheduler.quota import GPU, UNBOUNDED, effective

Shape = tuple[str, int, Mib]  # group, whole cards, MiB of one card


class Room:
    """What is free on the cards of a frame and within its quotas, and what waits."""

    def __init__(self, frame: Frame) -> None:
        groups = effective(frame.groups)
        self._limits = {name: (group.quota.limit or {}).get(GPU, UNBOUNDED) for name, group in groups.items()}
        self._closed = all(group.quota.limit == group.quota.quota for group in groups.values())
        self._memory = {gpu.uuid: gpu.memory_mib for gpu in frame.gpus}
        self._node = {gpu.uuid: gpu.node for gpu in frame.gpus}
        self._idle = Counter(self._node.values())
        self._largest = max(self._idle.values(), default=0)
        self._leases: Counter[str] = Counter()
        self._free: dict[str, Mib] = {}
        self._held: Counter[str] = Counter()
        self._waiting: Counter[Shape] = Counter()
        self._sessions = 0

    def queue(self, work: Work, sign: int) -> None:
        """Count work that begins to wait, or (`sign` -1) no longer does."""
        if work.kind == "session":
            self._sessions += sign
        else:
            request = work.request
            self._waiting[work.group, request.gpus, request.gpu_mib] += sign

    def lease(self, lease: Lease, sign: int) -> None:
        """Count what a lease holds; `sign` -1 gives it back."""
        self._held[lease.group] += sign * lease.placement.gpu_milli
        for share in lease.placement.gpus:
            uuid = share.uuid
            before = self._leases[uuid]
            self._leases[uuid] = before + sign
            self._free[uuid] = self._free.get(uuid, self._memory[uuid]) - sign * share.mib
            if not before or not self._leases[uuid]:
                self._idle[self._node[uuid]] -= sign
            if not self._leases[uuid]:
                del self._free[uuid]

    def may_start(self) -> bool:
        """Say whether anything that waits could perhaps start; always, where groups may borrow."""
        if not self._closed or self._sessions:
            return True
        idle = max(self._idle.values(), default=0)
        free = max(self._free.values(), default=0)
        return any(count and self._fits(*shape, idle, free) for shape, count in self._waiting.items())

    def _fits(self, group: str, gpus: int, mib: Mib, idle: int, free: Mib) -> bool:
        if self._held[group] >= self._limits[group] and (gpus or mib):
            return False
        return idle >= min(gpus, self._largest) if gpus else bool(idle) or free >= mib
