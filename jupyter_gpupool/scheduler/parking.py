"""Where works wait in the forecast.

Owns: the queues: works of one shape that wait at one place, best first, of which only the head is tried.
A place is a limit, or a lane: the shelves that would serve them.
Never: a try (`forecast`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

from jupyter_gpupool.scheduler.board import Option
from jupyter_gpupool.scheduler.lines import Lack, Purse, Reach
from jupyter_gpupool.scheduler.model import Work
from jupyter_gpupool.scheduler.placement import Shelf
from jupyter_gpupool.scheduler.quota import ROOT

Options = tuple[Option, ...]


@dataclass(slots=True, eq=False)
class Waiting:
    """A work that waits, the less its rank the better, in the queues of `places`."""

    rank: int
    work: Work
    options: Options
    places: tuple[Queue, ...] = ()

    def needs_as_much(self, other: Waiting) -> bool:
        """Say whether it needs the same room as another work, and as long at least."""
        mine, its = self.work, other.work
        return mine.request == its.request and mine.limit >= its.limit

    def move(self, places: tuple[Queue, ...]) -> None:
        """Wait in these queues, after it was tried, and in no others."""
        old, self.places = self.places, places
        for queue in old:
            if queue not in places and queue.head is self:
                queue.drop()
        for queue in places:
            if queue not in old:
                queue.add(self)
            if queue.head is self:
                queue.tried = True


class Queue:
    """Works of one shape that wait at one place, best first; `tried` tells whether the head has been tried.

    For room each of them needs so many whole `cards`. Where the head waits for room, and lacks some of a
    limit in all places, `lack` is that. Works that left since for another place are passed over when their
    turn comes.
    """

    __slots__ = ("cards", "home", "lack", "least", "tried", "works")

    def __init__(self, home: Limit | Lane, cards: int) -> None:
        self.home = home
        self.cards = cards
        self.works: list[tuple[int, Waiting]] = []
        self.tried = False
        self.lack: Lack | None = None
        self.least = 0

    @property
    def head(self) -> Waiting:
        """Return the best work."""
        return self.works[0][1]

    @property
    def is_new(self) -> bool:
        """Say whether the head is to be tried wherever there is room, not only where some frees."""
        return self.lack is not None or not self.tried

    def add(self, waiting: Waiting) -> None:
        """Add a work."""
        first = not self.works or waiting.rank < self.works[0][0]
        if first and self.works:
            self.home.forget(self)
        heappush(self.works, (waiting.rank, waiting))
        if first:
            self.lack = None
            self.home.note(self)

    def drop(self) -> None:
        """Let the head leave; the next one counts as tried if it needs no less."""
        self.home.forget(self)
        self.lack = None
        gone = heappop(self.works)[1]
        while self.works and (self.head is gone or self not in self.head.places):
            heappop(self.works)
        if self.works:
            self.tried = self.tried and self.head.needs_as_much(gone)
            self.home.note(self)


class Limit:
    """The queues of works that lack some of one limit, with what the head of each needs there.

    Queues that wait for room look on where they lack some of it, too.
    """

    def __init__(self) -> None:
        self._queues: dict[object, Queue] = {}
        self._lacks: dict[int, Lack] = {}
        self._by_least: dict[int, dict[Queue, None]] = {}
        self._looking_on: dict[Queue, None] = {}

    def queue(self, waiting: Waiting, lack: Lack) -> Queue:
        """Return where a work waits that lacks something here."""
        self._lacks[waiting.rank] = lack
        whose = waiting.work.group if isinstance(lack.line, Reach) else ""
        shape = lack.line.cap.what, whose, lack.need, _length(waiting.work)
        return _of_shape(self._queues, shape, self)

    def lack(self, waiting: Waiting) -> Lack:
        """Return what a work lacks that waits here."""
        return self._lacks[waiting.rank]

    def note(self, queue: Queue) -> None:
        """Take note of a queue's head."""
        line, need = self._lacks[queue.head.rank]
        queue.least = line.least(need)
        self._by_least.setdefault(queue.least, {})[queue] = None

    def forget(self, queue: Queue) -> None:
        """Forget a queue whose head changes."""
        del self._by_least[queue.least][queue]
        if not self._by_least[queue.least]:
            del self._by_least[queue.least]

    def look_on(self, queue: Queue, lack: Lack) -> None:
        """Take note of a queue that waits for room, and for some of this limit."""
        queue.lack = lack
        self._looking_on[queue] = None

    def ready(self, level: int) -> list[Queue]:
        """Return the queues whose heads may have enough where `level` is free."""
        found = [queue for least, queues in self._by_least.items() if least <= level for queue in queues]
        for queue in [*self._looking_on]:
            if queue.lack is None:
                del self._looking_on[queue]
            elif queue.lack.line.least(queue.lack.need) <= level:
                found.append(queue)
        return found


class Lane:
    """The queues of works that wait for room on the same shelves."""

    def __init__(self, shelves: tuple[Shelf, ...]) -> None:
        self.shelves = shelves
        self._queues: dict[object, Queue] = {}
        self._order: list[tuple[int, Queue]] = []

    def queue(self, waiting: Waiting) -> Queue:
        """Return where a work waits for room; those that differ little wait together."""
        work, size = waiting.work, waiting.options[0].size
        mib, cpus, memory = size.mib.bit_length(), size.cpus.bit_length(), size.memory.bit_length()
        reaches = any(isinstance(lack.line, Reach) for lack in waiting.options[0].needs)
        whose = _length(work), work.resumable, reaches
        shape = size.cards, size.whole, mib, cpus, memory, *whose
        return _of_shape(self._queues, shape, self, size.cards if size.whole else 0)

    def note(self, queue: Queue) -> None:
        """Take note of a queue's head."""
        insort(self._order, (queue.works[0][0], queue))

    def forget(self, queue: Queue) -> None:
        """Forget a queue whose head changes."""
        del self._order[bisect_left(self._order, (queue.works[0][0],))]

    def heads(self, after: int) -> list[tuple[int, Queue]]:
        """Return the queues by their heads, best first: those of a rank beyond `after`."""
        return self._order[bisect_left(self._order, (after + 1,)) :]


def is_common(lack: Lack) -> bool:
    """Say whether all groups lack it alike: waiting for it is as good as waiting for room.

    Assumed is that a line whose owner has no name is one of the whole pool: what all lend, or the slots of
    a host without a name. Every work needs of it what it takes, whoever's it is, unless its group keeps some
    for itself (`Reach`) or pays for it (`Purse`).
    """
    return lack.line.cap.owner == ROOT and not isinstance(lack.line, Reach | Purse)


def _of_shape(queues: dict[object, Queue], shape: object, home: Limit | Lane, cards: int = 0) -> Queue:
    found = queues.get(shape)
    if found is None:
        found = queues[shape] = Queue(home, cards)
    return found


def _length(work: Work) -> int:
    """Round how long a work lasts."""
    return work.limit.bit_length() // 2
