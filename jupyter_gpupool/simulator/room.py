"""Which passes would start and stop nothing, seen without making them: most of a long simulation's.

Owns: counts of idle cards, of what is free on shared ones, of what groups hold, and of what waits, kept as
work comes and goes. They give necessary conditions only, those that a fast pass looks at first (the
scheduler's `Shortlist`): when none holds, `fill` does nothing. Never: a decision.
"""

from __future__ import annotations

from collections import Counter

from jupyter_gpupool.frame import Frame
from jupyter_gpupool.scheduler.model import Lease, Mib, Work
from jupyter_gpupool.scheduler.quota import GPU, UNBOUNDED, QuotaTree, effective
from jupyter_gpupool.scheduler.tree import Tally

Shape = tuple[str, int, Mib]  # group, whole cards, MiB of one card


class Room:
    """What is free on the cards of a frame and within its quotas, and what waits.

    `used` is what groups hold of the cards.
    """

    def __init__(self, frame: Frame) -> None:
        groups = effective(frame.groups)
        self._limits = {name: (group.quota.limit or {}).get(GPU, UNBOUNDED) for name, group in groups.items()}
        self._tree = QuotaTree(groups, GPU, 1000 * len(frame.gpus))
        self.used = Tally(self._tree)
        self._above: set[str] = set()
        self._counts_all = all(group.quota.quota.keys() <= {GPU} for group in groups.values())
        self._preempting = {name for name, found in frame.priorities.items() if found.preempts}
        self._memory = {gpu.uuid: gpu.memory_mib for gpu in frame.gpus}
        self._node = {gpu.uuid: gpu.node for gpu in frame.gpus}
        self._idle = Counter(self._node.values())
        self._all = dict(self._idle)
        self._largest = max(self._idle.values(), default=0)
        self._leases: Counter[str] = Counter()
        self._free: dict[str, Mib] = {}
        self._held: Counter[str] = Counter()
        self._waiting: Counter[Shape] = Counter()
        self._first = 0

    def queue(self, work: Work, sign: int) -> None:
        """Count work that begins to wait, or (`sign` -1) no longer does."""
        if work.kind == "session" or work.priority in self._preempting:
            self._first += sign
        else:
            request = work.request
            shape = work.group, request.gpus, request.gpu_mib
            self._waiting[shape] += sign
            if not self._waiting[shape]:
                del self._waiting[shape]

    def lease(self, lease: Lease, sign: int) -> None:
        """Count what a lease holds; `sign` -1 gives it back."""
        self._hold(lease.group, sign * lease.placement.gpu_milli)
        for share in lease.placement.gpus:
            uuid = share.uuid
            before = self._leases[uuid]
            self._leases[uuid] = before + sign
            self._free[uuid] = self._free.get(uuid, self._memory[uuid]) - sign * share.mib
            if not before or not self._leases[uuid]:
                self._idle[self._node[uuid]] -= sign
            if not self._leases[uuid]:
                del self._free[uuid]

    def may_change(self) -> bool:
        """Say whether anything that waits could perhaps start, or make others stop."""
        if self._first:
            return True
        idle, free = self._most()
        taken_back = bool(self._above) or not self._counts_all
        return any(
            self._fits(*shape, idle, free) or (taken_back and self._owed(*shape)) for shape in self._waiting
        )

    def may_start(self, work: Work) -> bool:
        """Say whether there could be room for work that waits, or for a session."""
        request = work.request
        return self._first > 0 or self._fits(work.group, request.gpus, request.gpu_mib, *self._most())

    def _most(self) -> tuple[int, Mib]:
        """Return how many cards are idle in one node at most, and the most that is free on a shared one."""
        return max(self._idle.values(), default=0), max(self._free.values(), default=0)

    def _hold(self, group: str, milli: int) -> None:
        self._held[group] += milli
        self.used.add(group, milli)
        for name in self._tree.upward(self._tree.home(group)):
            if self.used.left(name) < 0:
                self._above.add(name)
            else:
                self._above.discard(name)

    def _fits(self, group: str, gpus: int, mib: Mib, idle: int, free: Mib) -> bool:
        if self._held[group] >= self._limits[group] and (gpus or mib):
            return False
        if gpus > self._largest:
            return sum(count for node, count in self._idle.items() if count == self._all[node]) >= gpus
        return idle >= gpus if gpus else bool(idle) or free >= mib

    def _owed(self, group: str, gpus: int, mib: Mib) -> bool:
        """Say whether a group would be within what it owns, as far as it is known here."""
        return not self._counts_all or self.used.left(group) >= 1000 * gpus
