"""Which works a fast pass must look at.

Owns: cheap necessary conditions for a start now; whoever fails one cannot start, whatever the order.
Never: a decision: what is listed is tried like anything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from operator import le

from jupyter_gpupool.scheduler.bars import may_be_promised
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.card import NOBODY
from jupyter_gpupool.scheduler.clearing import Clearing
from jupyter_gpupool.scheduler.model import Mib, Placement, Promise, Seconds, Work
from jupyter_gpupool.scheduler.precedence import Precedence
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.quota import CPUS, GPU, UNBOUNDED
from jupyter_gpupool.scheduler.timeline import FOREVER

FEW = 8
"""So many works are tried at once, rather than looked at first."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in one node of a bay: so many whole cards, so large a piece, for so long.

    `lasts` says for how long one card is free, two are, and so on; a piece is for as long as the first. It is
    there for those whom the reservations `serving` serve.
    """

    idle: int
    mib: Mib
    cpus: int
    memory: Mib
    lasts: tuple[Seconds, ...]
    serving: frozenset[int] = NOBODY

    def within(self, other: Room) -> bool:
        """Say whether whatever fits here fits in `other`."""
        return (
            self.idle <= other.idle
            and self.mib <= other.mib
            and self.cpus <= other.cpus
            and self.memory <= other.memory
            and all(map(le, self.lasts, other.lasts))
            and self.serving >= other.serving
        )


@dataclass(frozen=True, slots=True)
class Rooms:
    """All that is free: of each node, without what another node has more of; and the most of all."""

    each: list[Room]
    idle: int
    mib: Mib


class Shortlist:
    """The works of one snapshot that could start now, looked for only as far as needed."""

    def __init__(self, board: Board, promises: Promises, clearing: Clearing, precedence: Precedence) -> None:
        self._board = board
        self._promises = promises
        self._clearing = clearing
        self._precedence = precedence
        self._few = len(board.snapshot.waiting) <= FEW
        self._inside: set[str] = set()
        self._eased = False
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
        limits, taken = board.limits, board.roster.taken.items()
        self._running = board.roster.running
        self._without_gpus = {name for name, held in taken if held[GPU] >= limits.potential(name, GPU)}
        self._without_cpus = {name for name, held in taken if held[CPUS] >= limits.potential(name, CPUS)}
        self._without_owed = {name for name, held in taken if held[GPU] >= limits.subtree(name)[GPU]}

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
        self._measure()
        reserved = self._promises.all()
        if reserved != self._reserved:
            self._reserved = reserved
            self._next_special = 0
            self._begin()

    def _begin(self) -> None:
        """Look at all works anew."""
        self._next = 0
        self._eased = False
        self._put_by: list[Work] = []

    def ease(self) -> None:
        """Take note of a promise that came sooner: some of the room may last longer now."""
        self._eased = True
        self._measure()

    def _measure(self) -> None:
        self._found: Work | None = None
        self._due = self._promises.any_due()
        if self._few:
            return
        self._rooms = self._read()
        self._roomier: dict[int | None, Rooms] = {}

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
        if self._found is None or self._found.id in served:
            self._found = self._look(served)
            if self._found is None and self._eased:
                self._begin()
                self._found = self._look(served)
        return self._found

    def _look(self, served: Set[int]) -> Work | None:
        """Go on from the last that could not start."""
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
        return self._overtaking(served)

    def ranks(self, work: Work) -> bool:
        """Say whether `work` is among those that `choose` returned."""
        return work.group in self._inside

    def any_fits(self, works: Iterable[Work]) -> bool:
        """Say whether some of these jobs, which were passed over, fit at this moment."""
        return any(work.kind == "job" and self._could_start(work) and self._fits(work) for work in works)

    def _looks_hopeful(self, work: Work) -> bool:
        return self._could_start(work) or (self._clearing.anybody and self._could_take(work))

    def _is_hopeful(self, work: Work) -> bool:
        return (self._could_start(work) and self._would_start(work)) or (
            self._clearing.anybody and self._could_take(work) and self._would_take(work)
        )

    def _would_start(self, work: Work) -> bool:
        """Try whether `work` would start if it were its turn; who goes before promises is put by."""
        if self._fits(work):
            return True
        if self._promises.get(work.id) is None and self._precedence.may_overtake(work):
            self._put_by.append(work)
        return False

    def _overtaking(self, served: Set[int]) -> Work | None:
        """Return one of those put by that would start before promises that give way to it.

        First they are tried without all promises that could give way to any of a price.
        """
        precedence, promises, board = self._precedence, self._promises, self._board
        by_price: defaultdict[int | None, list[Work]] = defaultdict(list)
        for work in self._put_by:
            if work.id not in served and (self._due or board.fits_for_a_moment(work)):
                by_price[precedence.price(work)].append(work)
        self._put_by = []
        for price, works in by_price.items():
            with promises.without(promises.reserved(partial(precedence.may_give_way, price=price))):
                self._put_by += [work for work in works if self._fits(work)]
        while self._put_by:
            work = self._put_by[-1]
            with promises.without(promises.reserved(partial(precedence.overtakes, work))):
                if self._fits(work):
                    return work
            self._put_by.pop()
        return None

    def _fits(self, work: Work) -> bool:
        """Say whether `work` fits at this moment, without its own promise."""
        board, own = self._board, self._promises.get(work.id)
        if board.gate(work, board.time) != board.time:
            return False
        with self._promises.without([own] if own else []):
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

    def _would_take(self, work: Work) -> bool:
        """Look whether there would be room, sooner than is promised to it, if others were asked to stop."""
        own = self._promises.get(work.id)
        lifted = self._promises.reserved(lambda other: bool(self._precedence.takes_back(work, other)))
        with self._promises.without([*lifted, own] if own else lifted):
            if lifted and isinstance(self._board.attempt(work), Placement):
                return True
            room = self._clearing.room(work)
        return room is not None and (own is None or room.start < own.start)

    def _could_start(self, work: Work) -> bool:
        if work.held or work.invalid or work.after:
            return False
        if self._few:
            return True
        request, limits = work.request, self._board.limits
        without_cards = self._without_gpus if limits.may_borrow(work) else self._without_owed
        uses_cards = request.gpus or request.gpu_mib or request.share
        if work.group in (without_cards if uses_cards else self._without_cpus):
            return False
        if work.not_before > self._board.time or not self._may_run_more(work):
            return False
        if self._fits_in(work, self._rooms):
            return True
        return self._fits_in(work, self._roomiest) and self._fits_in(work, self._rooms_for(work))

    def _fits_in(self, work: Work, rooms: Rooms) -> bool:
        """Say whether there is room for a job, for as long as it lasts if it has no promise."""
        request = work.request
        spread = request.gpus > self._largest
        if request.gpu_mib > rooms.mib:
            return False
        if request.gpus > rooms.idle and not (spread and rooms.idle == self._largest):
            return False
        cards = min(request.gpus, self._largest)
        promised = work.id in self._promises.carried
        serving = self._board.floor.serving(work.group, work.user)
        return any(
            cards <= room.idle
            and request.gpu_mib <= room.mib
            and room.serving <= serving
            and (promised or work.limit <= room.lasts[max(cards, 1) - 1])
            and (spread or (request.cpus_milli <= room.cpus and request.memory_mib <= room.memory))
            for room in rooms.each
        )

    @property
    def _roomiest(self) -> Rooms:
        """Return what is free without any promise."""
        return self._without_promises(UNBOUNDED, lambda other: True)

    def _rooms_for(self, work: Work) -> Rooms:
        """Return what is free, for a job that goes before promises without those that might give way."""
        if not self._precedence.may_overtake(work):
            return self._rooms
        price = self._precedence.price(work)
        return self._without_promises(price, lambda other: self._precedence.may_give_way(other, price))

    def _without_promises(self, key: int | None, lifted: Callable[[Work], bool]) -> Rooms:
        found = self._roomier.get(key)
        if found is None:
            with self._promises.without(self._promises.reserved(lifted)):
                found = self._roomier[key] = self._read()
        return found

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

    def _read(self) -> Rooms:
        """Read what is free for jobs in each node."""
        rooms: list[Room] = []
        for room in self._each():
            if not any(map(room.within, rooms)):
                rooms = [other for other in rooms if not other.within(room)]
                rooms.append(room)
        idle = max((room.idle for room in rooms), default=-1)
        return Rooms(rooms, idle, max((room.mib for room in rooms), default=0))

    def _each(self) -> Iterator[Room]:
        now, partitions = self._board.time, self._board.snapshot.partitions
        for shelf in self._board.floor.shelves("job"):
            overcommit = partitions[shelf.bay.partition].cpu_overcommit_milli
            if not shelf.bay.memory:
                cpus = max((site.cpus.at(now) for site in shelf.bay.sites), default=0)
                memory = max((site.memory.at(now) for site in shelf.bay.sites), default=0)
                yield Room(0, 0, cpus * overcommit // 1000, memory, (FOREVER,))
            for site, idle, mib, cards in shelf.open_sites():
                cpus, memory = site.cpus.at(now) * overcommit // 1000, site.memory.at(now)
                lasts = sorted((shelf.lasts(card, now) - now for card in cards), reverse=True)
                yield Room(idle, mib, cpus, memory, tuple(lasts), shelf.serving)

    def _top(self, group: str) -> str:
        groups = self._board.limits.groups
        while groups[group].parent in groups:
            group = groups[group].parent
        return group
