"""Which works a fast pass must look at.

Owns: cheap necessary conditions for a start now; whoever fails one cannot start, whatever the order.
Never: a decision: what is listed is tried like anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass

from jupyter_gpupool.scheduler.bars import may_be_promised
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.card import NOBODY, Card
from jupyter_gpupool.scheduler.clearing import Clearing
from jupyter_gpupool.scheduler.model import Mib, Placement, Promise, Seconds, Work
from jupyter_gpupool.scheduler.placement import Shelf
from jupyter_gpupool.scheduler.precedence import Precedence
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.quota import CPUS, GPU
from jupyter_gpupool.scheduler.timeline import FOREVER

FEW = 8
"""So many works are tried at once, rather than looked at first."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in one node of a bay: so many whole cards, so large a piece, for so long.

    It is there for those whom the reservations `serving` serve.
    """

    idle: int
    mib: Mib
    cpus: int
    memory: Mib
    lasts: Seconds
    serving: frozenset[int] = NOBODY

    def within(self, other: Room) -> bool:
        """Say whether whatever fits here fits in `other`."""
        return (
            self.idle <= other.idle
            and self.mib <= other.mib
            and self.cpus <= other.cpus
            and self.memory <= other.memory
            and self.lasts <= other.lasts
            and self.serving >= other.serving
        )


class Shortlist:
    """The works of one snapshot that could start now, looked for only as far as needed."""

    def __init__(self, board: Board, promises: Promises, clearing: Clearing, precedence: Precedence) -> None:
        self._board = board
        self._promises = promises
        self._clearing = clearing
        self._precedence = precedence
        self._few = len(board.snapshot.waiting) <= FEW
        self._inside: set[str] = set()
        self._reserved: tuple[Promise, ...] | None = None
        sessions = [work for work in board.snapshot.waiting if work.kind == "session"]
        self._special = [*promises.carried.values(), *sessions]
        if not self._few:
            self._count()
        self.look_again()

    def _count(self) -> None:
        """Count what is there and what is held: it pays where many wait."""
        board = self._board
        self._largest = max((shelf.bay.largest for shelf in board.floor.shelves("job")), default=0)
        gpus: Counter[str] = Counter()
        cpus: Counter[str] = Counter()
        self._running: Counter[tuple[str, str]] = Counter()
        for lease in board.snapshot.leases:
            gpus[lease.group] += lease.placement.gpu_milli
            cpus[lease.group] += lease.request.cpus_milli
            if lease.kind == "job":
                self._running[lease.group, lease.user] += 1
        limits = board.limits
        self._without_gpus = {name for name, held in gpus.items() if held >= limits.potential(name, GPU)}
        self._without_cpus = {name for name, held in cpus.items() if held >= limits.potential(name, CPUS)}
        self._without_owed = {name for name, held in gpus.items() if held >= limits.subtree(name)[GPU]}

    def choose(self) -> list[Work]:
        """Return the works to rank.

        All are ranked while promises are free, since the best of them must get one before any worse
        work starts. Otherwise a whole branch of the group tree is left out when nothing in it could
        start or has a promise: the order of the others does not depend on it.
        """
        waiting, groups = self._board.snapshot.waiting, self._board.limits.groups
        open_groups = {name for name in groups if self._promises.open_to(name)}
        if open_groups and any(self._wants_promise(work, open_groups) for work in waiting):
            self._inside = set(groups)
            return list(waiting)
        tops = {name: self._top(name) for name in groups}
        chosen = {tops[work.group] for work in self._special}
        for work in waiting:
            if tops[work.group] not in chosen and self._looks_hopeful(work):
                chosen.add(tops[work.group])
        self._inside = {name for name in groups if tops[name] in chosen}
        return [work for work in waiting if work.group in self._inside]

    def look_again(self) -> None:
        """Take note of a start: there is less room now, or more where a promise was.

        Who could not start before still cannot, as long as the promises are the same.
        """
        self.measure()
        reserved = self._promises.all()
        if reserved != self._reserved:
            self._reserved = reserved
            self._next = self._next_special = 0

    def measure(self) -> None:
        """Take note of a promise that came sooner: some of the room may last longer now."""
        self._due = self._promises.due(self._board.time)
        if self._few:
            return
        self._rooms = self._read()
        self._idle = max((room.idle for room in self._rooms), default=-1)
        self._mib = max((room.mib for room in self._rooms), default=0)

    def matters(self, work: Work) -> bool:
        """Say whether something could come of the turn of `work`."""
        return (
            work.kind == "session"
            or work.id in self._promises.carried
            or self._promises.open_to(work.group)
            or self._looks_hopeful(work)
        )

    def candidate(self, served: Set[int]) -> Work | None:
        """Return some work that could start at this moment, `served` ones apart; None when none could."""
        while self._next_special < len(self._special):
            work = self._special[self._next_special]
            if work.id not in served and self._is_due(work):
                return work
            self._next_special += 1
        waiting = self._board.snapshot.waiting
        while self._next < len(waiting):
            work = waiting[self._next]
            if work.id not in served and self._is_hopeful(work):
                return work
            self._next += 1
        return None

    def ranks(self, work: Work) -> bool:
        """Say whether `work` is among those that `choose` returned."""
        return work.group in self._inside

    def any_hopeful(self, works: Iterable[Work]) -> bool:
        """Say whether some of these jobs could start at this moment."""
        return any(work.kind == "job" and self._is_hopeful(work) for work in works)

    def _looks_hopeful(self, work: Work) -> bool:
        return (
            self._could_start(work)
            or (self._clearing.anybody and self._could_take(work))
            or self._could_replace(work)
        )

    def _is_hopeful(self, work: Work) -> bool:
        return (
            (self._could_start(work) and self._would_start(work))
            or (self._clearing.anybody and self._could_take(work))
            or self._could_replace(work)
        )

    def _could_replace(self, work: Work) -> bool:
        """Say whether a promise that takes room now might give way to a job."""
        if not self._due or work.kind == "session" or work.held or work.invalid or work.after:
            return False
        if self._board.gate(work, self._board.time) != self._board.time or not self._may_run_more(work):
            return False
        return any(self._precedence.overtakes(work, other) for other in self._due)

    def _would_start(self, work: Work) -> bool:
        """Try whether `work` would start if it were its turn."""
        board = self._board
        if board.gate(work, board.time) != board.time:
            return False
        if work.id in self._promises.carried or self._precedence.may_overtake(work):
            return board.fits_for_a_moment(work)
        return isinstance(board.attempt(work), Placement)

    def _could_take(self, work: Work) -> bool:
        """Say whether others could be asked to stop for `work`."""
        if work.kind == "session" or work.held or work.invalid or work.after:
            return False
        if work.not_before > self._board.time or not self._may_run_more(work):
            return False
        if not self._clearing.may_take(work, self._promises.get(work.id)):
            return False
        return self._board.gate(work, self._board.time) == self._board.time and may_be_promised(
            self._board, work
        )

    def _could_start(self, work: Work) -> bool:
        if self._few:
            return not (work.held or work.invalid or work.after)
        if not self._rooms:
            return False
        request = work.request
        gpus, mib = request.gpus, request.gpu_mib
        spread = gpus > self._largest
        if (gpus > self._idle and not (spread and self._idle == self._largest)) or mib > self._mib:
            return False
        without_cards = self._without_gpus if self._board.limits.may_borrow(work) else self._without_owed
        if work.group in (without_cards if gpus or mib or request.share else self._without_cpus):
            return False
        if work.held or work.invalid or work.after or work.not_before > self._board.time:
            return False
        promised = work.id in self._promises.carried
        cards = min(gpus, self._largest)
        serving = self._board.floor.serving(work.group, work.user)
        for room in self._rooms:
            if (
                cards <= room.idle
                and room.serving <= serving
                and mib <= room.mib
                and (promised or work.limit <= room.lasts or self._precedence.may_overtake(work))
                and (spread or (request.cpus_milli <= room.cpus and request.memory_mib <= room.memory))
            ):
                return self._may_run_more(work)
        return False

    def _is_due(self, work: Work) -> bool:
        """Say whether `work` is tried in any case: a session, or promised for now."""
        if work.kind == "session":
            return True
        promise = self._promises.get(work.id)
        return promise is not None and promise.start <= self._board.time

    def _may_run_more(self, work: Work) -> bool:
        """Say whether the user has a job left to start, where that is known."""
        if self._few:
            return True
        running = self._running[work.group, work.user]
        if not running:
            return True
        most = self._board.limits.of_user(work.group, work.user).running_jobs
        return most is None or running < most

    def _wants_promise(self, work: Work, open_groups: set[str]) -> bool:
        return (
            work.group in open_groups
            and work.kind == "job"
            and work.id not in self._promises.carried
            and not (work.held or work.invalid or work.after)
        )

    def _read(self) -> list[Room]:
        """Read what is free for jobs in each node, without what another node has more of."""
        now, partitions = self._board.time, self._board.snapshot.partitions
        rooms: list[Room] = []
        for shelf in self._board.floor.shelves("job"):
            overcommit = partitions[shelf.bay.partition].cpu_overcommit_milli
            if not shelf.bay.memory:
                cpus = max((site.cpus.at(now) for site in shelf.bay.sites), default=0)
                memory = max((site.memory.at(now) for site in shelf.bay.sites), default=0)
                rooms.append(Room(0, 0, cpus * overcommit // 1000, memory, FOREVER))
            for site, idle, mib, cards in shelf.open_sites():
                room = Room(
                    idle,
                    mib,
                    site.cpus.at(now) * overcommit // 1000,
                    site.memory.at(now),
                    FOREVER if any(card.only_frees for card in cards) else _longest(shelf, cards, now) - now,
                    shelf.serving,
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


def _longest(shelf: Shelf, cards: Iterable[Card], now: Seconds) -> Seconds:
    return max(shelf.lasts(card, now) for card in cards)
