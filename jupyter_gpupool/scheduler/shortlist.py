"""Which works a fast pass must look at.

Owns: cheap necessary conditions for a start now; whoever fails one cannot start, whatever the order.
Never: a decision: what is listed is tried like anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Mib, Seconds, Work
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.quota import CPUS, GPU, UNBOUNDED
from jupyter_gpupool.scheduler.timeline import FOREVER


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in one node of a bay: so many whole cards, so large a piece, for so long."""

    idle: int
    mib: Mib
    cpus: int
    memory: Mib
    lasts: Seconds

    def within(self, other: Room) -> bool:
        """Say whether whatever fits here fits in `other`."""
        return (
            self.idle <= other.idle
            and self.mib <= other.mib
            and self.cpus <= other.cpus
            and self.memory <= other.memory
            and self.lasts <= other.lasts
        )


class Shortlist:
    """The works of one snapshot that could start now, read again after each start."""

    def __init__(self, board: Board, promises: Promises) -> None:
        self._board = board
        self._promises = promises
        self._shelves = board.floor.shelves("job")
        self._largest = max((shelf.bay.largest for shelf in self._shelves), default=0)
        leases = board.snapshot.leases
        self._gpus: Counter[str] = Counter()
        self._cpus: Counter[str] = Counter()
        for lease in leases:
            self._gpus[lease.group] += lease.placement.gpu_milli
            self._cpus[lease.group] += lease.request.cpus_milli
        self._running = Counter((lease.group, lease.user) for lease in leases if lease.kind == "job")
        self._rooms: list[Room] = []
        self._special = [
            work for work in board.snapshot.waiting if work.kind == "session" or work.id in promises.carried
        ]
        self._inside: set[str] = set()

    def choose(self) -> tuple[list[Work], dict[int, Work]]:
        """Return the works to rank, and those among them that could start.

        All are ranked while promises are free, since the best of them must get one before any worse
        work starts. Otherwise a whole branch of the group tree is left out when nothing in it could
        start or has a promise: the order of the others does not depend on it.
        """
        waiting, groups = self._board.snapshot.waiting, self._board.limits.groups
        hopeful = self.hopeful()
        open_groups = {name for name in groups if self._promises.open_to(name)}
        if open_groups and any(self._wants_promise(work, open_groups) for work in waiting):
            self._inside = set(groups)
            return list(waiting), hopeful
        tops = {self._top(work.group) for work in (*hopeful.values(), *self._special)}
        self._inside = {name for name in groups if self._top(name) in tops}
        return [work for work in waiting if work.group in self._inside], hopeful

    def hopeful(self, before: Mapping[int, Work] | None = None) -> dict[int, Work]:
        """Return the works that could start at this moment, by id.

        `before` is the last answer: where no more room has appeared since, only those are looked at.
        """
        old, self._rooms = self._rooms, self._read()
        works: Iterable[Work] = self._board.snapshot.waiting
        if before is not None and all(any(map(room.within, old)) for room in self._rooms):
            works = before.values()
        idle = max((room.idle for room in self._rooms), default=-1)
        mib = max((room.mib for room in self._rooms), default=0)
        most = self._largest
        found = {
            work.id: work
            for work in (works if self._rooms else ())
            if (work.request.gpus <= idle or (work.request.gpus > most and idle == most))
            and work.request.gpu_mib <= mib
            and self._could_start(work)
        }
        found.update((work.id, work) for work in self._special if self._is_due(work))
        return found

    def ranks(self, work: Work) -> bool:
        """Say whether `work` is among those that `choose` returned."""
        return work.group in self._inside

    def _could_start(self, work: Work) -> bool:
        promise = self._promises.get(work.id)
        if work.held or work.invalid or work.not_before > self._board.time:
            return False
        request = work.request
        cards, mib = min(request.gpus, self._largest), 0 if request.gpus else request.gpu_mib
        spread = request.gpus > self._largest
        for room in self._rooms:
            if (
                cards <= room.idle
                and mib <= room.mib
                and (promise is not None or work.limit <= room.lasts)
                and (spread or (request.cpus_milli <= room.cpus and request.memory_mib <= room.memory))
            ):
                return self._is_open(work)
        return False

    def _is_due(self, work: Work) -> bool:
        """Say whether `work` is tried in any case: a session, or promised for now."""
        if work.kind == "session":
            return True
        promise = self._promises.get(work.id)
        return promise is not None and promise.start <= self._board.time

    def _is_open(self, work: Work) -> bool:
        """Say whether the group has quota left and the user a job to start."""
        limits, request = self._board.limits, work.request
        owed = limits.groups[work.group].quota.quota
        if request.gpus or request.gpu_mib or request.share:
            if self._gpus[work.group] >= owed[GPU]:
                return False
        elif self._cpus[work.group] >= owed.get(CPUS, UNBOUNDED):
            return False
        running = self._running[work.group, work.user]
        if not running:
            return True
        most = limits.of_user(work.group, work.user).running_jobs
        return most is None or running < most

    def _wants_promise(self, work: Work, open_groups: set[str]) -> bool:
        return (
            work.group in open_groups
            and work.kind == "job"
            and work.id not in self._promises.carried
            and not work.held
            and not work.invalid
        )

    def _read(self) -> list[Room]:
        """Read what is free for jobs in each node, without what another node has more of."""
        now, partitions = self._board.time, self._board.snapshot.partitions
        rooms: list[Room] = []
        for shelf in self._shelves:
            overcommit = partitions[shelf.bay.partition].cpu_overcommit_milli
            for site, idle, views in shelf.open_sites():
                room = Room(
                    idle,
                    max((view.at(now) for view in views), default=0),
                    site.cpus.at(now) * overcommit // 1000,
                    site.memory.at(now),
                    max((view.reach(1, now) for view in views), default=FOREVER) - now,
                )
                if not any(map(room.within, rooms)):
                    rooms = [other for other in rooms if not other.within(room)]
                    rooms.append(room)
        return rooms

    def _top(self, group: str) -> str:
        groups = self._board.limits.groups
        while groups[group].parent in groups:
            group = groups[group].parent
        return group
