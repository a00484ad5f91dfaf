"""When the rest may start: list scheduling on the same timeline, event by event.

Owns: the virtual walk from one end to the next. Work that cannot start is parked at what it lacks and
tried again only when some of that frees; works of one shape wait in one line, and only its head is tried.
Never: a promise: nothing found here is reserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from jupyter_gpupool.scheduler.board import Board, Option
from jupyter_gpupool.scheduler.limits import Claim, Line
from jupyter_gpupool.scheduler.model import Placement, Promise, Seconds, Start, Work
from jupyter_gpupool.scheduler.placement import Card, Shelf, Size
from jupyter_gpupool.scheduler.timeline import Profile

Lane = tuple[Shelf, ...]
Place = Profile | Lane  # where work is parked: a limit, or the shelves that would serve it
Need = int | tuple[Size, ...]  # what it needs there
Event = tuple[Seconds, int, tuple[Card, ...], tuple[str, ...], tuple[Line, ...]]


Parked = tuple[int, Work, Need]  # best first by rank, the first field
Queue = list[Parked]
Shape = tuple[object, int]  # about the same needs, and about the same time limit


def forecast(
    board: Board, order: Iterable[Work], starts: Iterable[Start], promises: Iterable[Promise]
) -> dict[int, tuple[Seconds, Placement]]:
    """Find an expected start and place for each work of `order` (best first) that has no promise.

    The board is used up: its moment moves on, and the starts found are booked on it.
    """
    works = {work.id: work for work in board.snapshot.waiting}
    walk = _Walk(board)
    promised = set()
    for lease in board.snapshot.leases:
        walk.expect_end(lease, lease.placement, board.limits.end_of(lease))
    for start in starts:
        work = works[start.work]
        walk.expect_end(work, start.placement, board.time + work.limit)
    for promise in promises:
        promised.add(promise.work)
        work = works[promise.work]
        walk.expect_start(promise)
        walk.expect_end(work, promise.placement, promise.start + work.limit)
    walk.run([work for work in order if work.id not in promised and board.options(work)])
    return walk.found


class _Walk:
    def __init__(self, board: Board) -> None:
        self.found: dict[int, tuple[Seconds, Placement]] = {}
        self._board = board
        self._events: list[Event] = []
        self._noted = 0
        self._timers: list[tuple[Seconds, int, Work]] = []
        self._parked: dict[Place, dict[Shape, Queue]] = {}
        self._lanes: dict[tuple[Option, ...], tuple[Lane, tuple[Size, ...]]] = {}
        self._lanes_of_node: dict[str, dict[Lane, None]] = {}

    def expect_end(self, claim: Claim, placement: Placement, end: Seconds) -> None:
        """Note that what a claim holds frees at `end`."""
        self._expect(end, placement, placement.nodes, self._board.limits.lines(claim))

    def expect_start(self, promise: Promise) -> None:
        """Note that a promise takes its cards at its start."""
        self._expect(promise.start, promise.placement, (), ())

    def run(self, works: list[Work]) -> None:
        """Walk from event to event until all have started or nothing more happens."""
        for rank, work in enumerate(works):
            self._try(rank, work, None)
        while self._events or self._timers:
            self._board.advance(min(heap[0][0] for heap in (self._events, self._timers) if heap))
            self._wake(self._next_places(), self._next_timers())

    def _expect(
        self, time: Seconds, placement: Placement, nodes: tuple[str, ...], lines: tuple[Line, ...]
    ) -> None:
        known = self._board.floor.cards
        cards = tuple(known[share.uuid] for share in placement.gpus if share.uuid in known)
        self._noted += 1
        heappush(self._events, (time, self._noted, cards, nodes, lines))

    def _next_places(self) -> dict[Place, None]:
        """Take all events of this moment; return where they free something."""
        board = self._board
        places: dict[Place, None] = {}
        while self._events and self._events[0][0] == board.time:
            _, _, cards, nodes, lines = heappop(self._events)
            for card in cards:
                board.floor.refresh(card)
            for line in lines:
                places[line.profile] = None
            for node in nodes:
                for lane in self._lanes_of_node.get(node, ()):
                    places[lane] = None
        return places

    def _next_timers(self) -> list[Queue]:
        """Take all works whose back-off or window allows a start from this moment on."""
        due: list[Queue] = []
        while self._timers and self._timers[0][0] == self._board.time:
            _, rank, work = heappop(self._timers)
            due.append([(rank, work, 0)])
        return due

    def _wake(self, places: Mapping[Place, None], due: list[Queue]) -> None:
        """Try those whose time has come and the heads of the queues at `places`, best first."""
        heads: list[tuple[int, Place | None, Queue]] = [(queue[0][0], None, queue) for queue in due]
        for woken in places:
            heads += [
                (queue[0][0], woken, queue)
                for queue in self._parked.get(woken, {}).values()
                if queue and self._could(woken, queue[0][2])
            ]
        heapify(heads)
        failed: list[Parked] = []
        while heads:
            _, place, queue = heappop(heads)
            head = queue[0]
            if place is not None and (not self._could(place, head[2]) or _hopeless(head, failed)):
                continue
            if self._try(head[0], head[1], place):
                heappop(queue)
                if queue:
                    heappush(heads, (queue[0][0], place, queue))
            else:
                failed.append(head)

    def _could(self, place: Place, need: Need) -> bool:
        """Say, at little cost, whether the head of a queue might start at this moment."""
        if isinstance(need, int):
            return isinstance(place, Profile) and place.at(self._board.time) >= need
        if isinstance(place, Profile):
            return False
        return any(map(Shelf.may_hold, place, need))

    def _try(self, rank: int, work: Work, place: Place | None) -> bool:
        """Start `work` at this moment or park it; say whether it left `place`."""
        board = self._board
        gate = board.gate(work, board.time)
        if gate != board.time:
            if gate is not None:
                heappush(self._timers, (gate, rank, work))
            return True
        found = board.attempt(work)
        if isinstance(found, Placement):
            end = board.time + work.limit
            board.book(work, found, board.time, end)
            self.expect_end(work, found, end)
            self.found[work.id] = board.time, found
            return True
        if found is None:
            lane, sizes = self._lane(work)
            return self._park((rank, work, sizes), place, lane)
        line, need = found
        return self._park((rank, work, need), place, line.profile)

    def _park(self, parked: Parked, old: Place | None, new: Place) -> bool:
        if new == old:
            return False
        _, work, need = parked
        shape = _about(need), work.limit.bit_length()
        heappush(self._parked.setdefault(new, {}).setdefault(shape, []), parked)
        return True

    def _lane(self, work: Work) -> tuple[Lane, tuple[Size, ...]]:
        options = self._board.options(work)
        found = self._lanes.get(options)
        if found is None:
            lane = tuple(option.shelf for option in options)
            found = self._lanes[options] = lane, tuple(option.size for option in options)
            for shelf in lane:
                for site in shelf.bay.sites:
                    self._lanes_of_node.setdefault(site.node, {})[lane] = None
        return found


def _about(need: Need) -> object:
    """Round a need, so that works that differ little wait in one queue."""
    if isinstance(need, int):
        return need.bit_length()
    size = need[0]
    return size.cards, size.whole, size.mib.bit_length(), size.cpus.bit_length(), size.memory.bit_length()


def _hopeless(parked: Parked, failed: list[Parked]) -> bool:
    """Say whether a work that needs no more, nor for longer, has just failed on the same shelves."""
    _, work, need = parked
    if isinstance(need, int):
        return False
    size = need[0]
    for _, other, needed in failed:
        if not isinstance(needed, int) and len(needed) == len(need) == 1 and other.limit <= work.limit:
            less = needed[0]
            if (
                less.cards <= size.cards
                and less.mib <= size.mib
                and less.cpus <= size.cpus
                and less.memory <= size.memory
            ):
                return True
    return False
