"""When the rest may start: list scheduling on the same timeline, event by event.

Owns: the virtual walk from one end, window edge or reservation to the next. Work that cannot start is parked
at what it lacks and tried again only when some of that frees; works of one shape wait in one line, and only
its head is tried.
Never: a promise: nothing found here is reserved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

from jupyter_gpupool.scheduler.board import Bars, Board, Option
from jupyter_gpupool.scheduler.card import Card
from jupyter_gpupool.scheduler.lines import Claim, Lack, Purse, Reach
from jupyter_gpupool.scheduler.model import Placement, Promise, Reservation, Seconds, Start, Work
from jupyter_gpupool.scheduler.placement import Shelf, Size
from jupyter_gpupool.scheduler.quota import UNBOUNDED
from jupyter_gpupool.scheduler.timeline import FOREVER, Profile

Lane = tuple[Shelf, ...]
Place = Profile | Lane  # where work is parked: a limit, or the shelves that would serve it
Event = tuple[Seconds, int, tuple[Card, ...], tuple[str, ...], tuple[Profile, ...]]
Room = tuple[
    int, int, int, int, int, Seconds
]  # number of its shelf; idle cards, MiB, CPUs, memory; until when
Rooms = dict[Lane, dict[str, list[Room]]]  # by node


class Wish(NamedTuple):
    """What work needs of each shelf of its lane, and the limit that bars it from there at present."""

    sizes: tuple[Size, ...]
    bars: tuple[Profile | None, ...]


ANYTHING = Wish((), ())
Need = Lack | Wish  # what work needs where it is parked
Parked = tuple[int, Work, Need]  # best first by rank, the first field


class _Queue:
    """Works of one shape parked at one place, best first; `tried` tells whether its head has been tried.

    Parked at a limit, its head cannot start while less than `least` is free there.
    """

    __slots__ = ("least", "place", "tried", "works")

    def __init__(self, place: Place | None, works: list[Parked]) -> None:
        self.place = place
        self.works = works
        self.tried = False
        self.least = UNBOUNDED

    def push(self, parked: Parked) -> None:
        """Add a work that has been tried."""
        heappush(self.works, parked)
        if self.works[0] is parked:
            self.tried = True
            self._measure()

    def pop(self) -> None:
        """Let the head leave."""
        heappop(self.works)
        self.tried = False
        self._measure()

    def _measure(self) -> None:
        need = self.works[0][2] if self.works else None
        self.least = need.line.least(need.need) if isinstance(need, Lack) else UNBOUNDED


NOWHERE = _Queue(None, [])


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
        walk.expect_end(lease, lease.placement, board.expected_end(lease))
    for start in starts:
        work = works[start.work]
        walk.expect_end(work, start.placement, board.end_of(work, start.placement, board.time))
    for promise in promises:
        promised.add(promise.work)
        work = works[promise.work]
        walk.expect_start(promise)
        walk.expect_end(work, promise.placement, board.end_of(work, promise.placement, promise.start))
    for reservation in board.snapshot.reservations:
        walk.expect_reservation(reservation)
    walk.run([work for work in order if work.id not in promised and board.options(work)])
    return walk.found


class _Walk:
    def __init__(self, board: Board) -> None:
        self.found: dict[int, tuple[Seconds, Placement]] = {}
        self._board = board
        self._events: list[Event] = []
        self._noted = 0
        self._timers: list[tuple[Seconds, int, Work]] = []
        self._edges = [(edge, name) for name in board.floor.lenders if (edge := self._edge(name))]
        self._left = 0
        self._parked: dict[Place, dict[object, _Queue]] = {}
        self._lacking: dict[Profile, dict[_Queue, None]] = {}
        self._sizes: dict[tuple[Option, ...], tuple[Lane, tuple[Size, ...]]] = {}
        self._lanes: set[Lane] = set()
        self._lanes_of_node: dict[str, dict[Lane, None]] = {}

    def expect_end(self, claim: Claim, placement: Placement, end: Seconds) -> None:
        """Note that what a claim holds frees at `end`; by day that may let a job take any card lent there."""
        nodes, floor = placement.nodes, self._board.floor
        if claim.kind == "session" and placement.partition in floor.headrooms:
            nodes = floor.nodes_of(placement.partition)
        self._expect(end, self._cards(placement), nodes, tuple(self._board.limits.profiles(claim)))
        for early, profile in self._board.limits.early(claim):
            if end - early > self._board.time:
                self._expect(end - early, (), (), (profile,))

    def expect_start(self, promise: Promise) -> None:
        """Note that a promise takes its cards at its start."""
        self._expect(promise.start, self._cards(promise.placement), (), ())

    def expect_reservation(self, reservation: Reservation) -> None:
        """Note when the cards of a reservation change hands."""
        known = self._board.floor.cards
        cards = tuple(known[uuid] for uuid in sorted(reservation.gpus) if uuid in known)
        nodes = tuple(dict.fromkeys(card.gpu.node for card in cards))
        for edge in (reservation.start, reservation.end):
            if edge > self._board.time:
                self._expect(edge, cards, nodes, ())

    def run(self, works: list[Work]) -> None:
        """Walk from event to event until all have started or nothing more happens."""
        self._left = len(works)
        for rank, work in enumerate(works):
            self._try(rank, work, NOWHERE)
        heapify(self._edges)
        while self._left and (self._events or self._timers or self._edges):
            heaps = (self._events, self._timers, self._edges)
            self._board.advance(min(heap[0][0] for heap in heaps if heap))
            nodes, profiles = self._take_events()
            self._take_edges(nodes)
            self._wake(self._take_timers(), nodes, profiles)

    def _cards(self, placement: Placement) -> tuple[Card, ...]:
        known = self._board.floor.cards
        return tuple(known[share.uuid] for share in placement.gpus if share.uuid in known)

    def _expect(
        self, time: Seconds, cards: tuple[Card, ...], nodes: tuple[str, ...], profiles: tuple[Profile, ...]
    ) -> None:
        self._noted += 1
        heappush(self._events, (time, self._noted, cards, nodes, profiles))

    def _take_events(self) -> tuple[dict[str, None], dict[Profile, None]]:
        """Take all events of this moment; return the nodes and the limits where something frees."""
        board = self._board
        freed: dict[str, None] = {}
        freer: dict[Profile, None] = {}
        while self._events and self._events[0][0] == board.time:
            _, _, cards, nodes, profiles = heappop(self._events)
            for card in cards:
                board.floor.refresh(card)
            for node in nodes:
                freed[node] = None
            freer.update(dict.fromkeys(profiles))
        return freed, freer

    def _take_edges(self, freed: dict[str, None]) -> None:
        """Add the nodes whose cards are lent from this moment on."""
        while self._edges and self._edges[0][0] == self._board.time:
            _, name = heappop(self._edges)
            if self._board.floor.lenders[name].open(self._board.time):
                freed.update(dict.fromkeys(self._board.floor.nodes_of(name)))
            following = self._edge(name)
            if following is not None:
                heappush(self._edges, (following, name))

    def _edge(self, partition: str) -> Seconds | None:
        return self._board.floor.lenders[partition].next_edge(self._board.time)

    def _take_timers(self) -> list[_Queue]:
        """Take all works whose back-off, window or budget allows a start from this moment on."""
        due = []
        while self._timers and self._timers[0][0] == self._board.time:
            _, rank, work = heappop(self._timers)
            due.append(_Queue(None, [(rank, work, ANYTHING)]))
        return due

    def _wake(self, due: list[_Queue], nodes: Collection[str], profiles: Iterable[Profile]) -> None:
        """Try those whose time has come and the heads of the queues where something frees, best first."""
        heads = [(queue.works[0][0], queue) for queue in due]
        for profile in profiles:
            queues = self._parked.get(profile, {})
            level = profile.at(self._board.time) if queues else 0
            heads += [(q.works[0][0], q) for q in queues.values() if q.least <= level]
            for queue in self._lacking.pop(profile, ()):
                queue.tried = False
                heads += [(queue.works[0][0], queue)] if queue.works else []
        rooms: Rooms = {}
        self._read(rooms, nodes)
        for lane, free_in in rooms.items():
            queues = self._parked[lane]
            heads += [(q.works[0][0], q) for q in queues.values() if q.works and self._may_fit(q, free_in)]
        heapify(heads)
        while heads:
            _, queue = heappop(heads)
            if not (queue.works and self._still(queue, rooms)):
                continue
            rank, work, _ = queue.works[0]
            if self._try(rank, work, queue):
                queue.pop()
                if work.id in self.found:
                    self._read(rooms, [node for node in self.found[work.id][1].nodes if node in nodes])
                if queue.works:
                    heappush(heads, (queue.works[0][0], queue))
            else:
                queue.tried = True

    def _read(self, rooms: Rooms, nodes: Iterable[str]) -> None:
        """Note what is free on nodes, for each lane that looks at them."""
        time = self._board.time
        for node in nodes:
            for lane in self._lanes_of_node.get(node, ()):
                if lane in self._parked:
                    rooms.setdefault(lane, {})[node] = [
                        (number, *shelf.room(node, time))
                        for number, shelf in enumerate(lane)
                        if shelf.serves(node) and shelf.open(time)
                    ]

    def _still(self, queue: _Queue, rooms: Rooms) -> bool:
        """Say whether the head of a queue might still start, after others did at this moment."""
        if queue.place is None:
            return True
        if isinstance(queue.place, Profile):
            return self._fits(queue)
        return self._may_fit(queue, rooms.get(queue.place, {}))

    def _fits(self, queue: _Queue) -> bool:
        """Say whether the limit at which a queue is parked has room for its head, as long as it would run."""
        time, (_, work, need) = self._board.time, queue.works[0]
        if not isinstance(need, Lack) or queue.least > need.line.profile.at(time):
            return False
        terms = (option.term(work, time) for option in self._board.options(work))
        backs = (term.back for term in terms if term is not None)
        return need.line.fits(need.need, time, min(time + work.limit, *backs, FOREVER))

    def _may_fit(self, queue: _Queue, rooms: Mapping[str, list[Room]]) -> bool:
        """Say whether the head may fit where something freed; one that was never tried may fit anywhere."""
        if not queue.tried:
            return True
        time, (_, work, need) = self._board.time, queue.works[0]
        if isinstance(need, Lack):
            return False
        end, options = time + work.limit, self._board.options(work)
        for number, idle, mib, cpus, memory, until in chain.from_iterable(rooms.values()):
            size = need.sizes[number]
            if (
                need.bars[number] is None
                and end <= until
                and (size.cards <= idle if size.whole else size.mib <= mib)
                and size.cpus <= cpus
                and size.memory <= memory
                and options[number].open_to(work, time)
            ):
                return True
        return False

    def _try(self, rank: int, work: Work, queue: _Queue) -> bool:
        """Start `work` at this moment or park it; say whether it left `queue`."""
        board = self._board
        gate = board.gate(work, board.time)
        if gate != board.time:
            return self._put_off(rank, work, gate)
        found = board.attempt(work)
        if isinstance(found, Placement):
            end = board.end_of(work, found, board.time)
            board.book(work, found, board.time, end)
            self.expect_end(work, found, end)
            self.found[work.id] = board.time, found
            self._left -= 1
            return True
        bars = self._barred(work, found)
        lack = bars[0]
        if lack is None or any(bar != lack for bar in bars):
            return self._await_room(rank, work, bars, queue)
        if isinstance(lack.line, Purse):
            end = lack.line.period_end(board.time)
            return self._put_off(rank, work, None if end == FOREVER else end)
        return self._park((rank, work, lack), lack.line.profile, queue) is not queue

    def _barred(self, work: Work, bars: Bars) -> Bars:
        """Add what bars work also from cards that are not lent to it now: only a change there matters."""
        if not any(bars):
            return bars
        time, options = self._board.time, self._board.options(work)
        return tuple(bar or one.lack(time, time + 1) for bar, one in zip(bars, options, strict=True))

    def _await_room(self, rank: int, work: Work, bars: Bars, old: _Queue) -> bool:
        """Park work where any of its cards may come free; its limits have room at once, or may have later."""
        lane, sizes = self._lane(work)
        profiles = tuple(None if bar is None else bar.line.profile for bar in bars)
        queue = self._park((rank, work, Wish(sizes, profiles)), lane, old)
        if queue.works[0][1] is work:
            for bar in bars:
                if bar is not None:
                    self._lacking.setdefault(bar.line.profile, {})[queue] = None
                    if isinstance(bar.line, Purse):
                        self._expect(bar.line.period_end(self._board.time), (), (), (bar.line.profile,))
        return queue is not old

    def _put_off(self, rank: int, work: Work, time: Seconds | None) -> bool:
        """Try `work` again at `time`; None: never."""
        if time is None:
            self._left -= 1
        else:
            heappush(self._timers, (time, rank, work))
        return True

    def _park(self, parked: Parked, place: Place, old: _Queue) -> _Queue:
        """Let work wait at a place, if it is not in that queue already; return its queue."""
        shape = _about(parked)
        queues = self._parked.setdefault(place, {})
        queue = queues.get(shape)
        if queue is None:
            queue = queues[shape] = _Queue(place, [])
        if queue is not old:
            queue.push(parked)
        return queue

    def _lane(self, work: Work) -> tuple[Lane, tuple[Size, ...]]:
        options = self._board.options(work)
        found = self._sizes.get(options)
        if found is None:
            lane = tuple(option.shelf for option in options)
            found = self._sizes[options] = lane, tuple(option.size for option in options)
            if lane not in self._lanes:
                self._add(lane)
        return found

    def _add(self, lane: Lane) -> None:
        self._lanes.add(lane)
        for shelf in lane:
            for site in shelf.bay.sites:
                self._lanes_of_node.setdefault(site.node, {})[lane] = None


def _about(parked: Parked) -> object:
    """Round what a work needs and for how long, so that works that differ little wait in one queue."""
    _, work, need = parked
    length = work.limit.bit_length() // 2
    if isinstance(need, Lack):
        whose = work.group if isinstance(need.line, Reach) else ""
        return need.line.cap.what, whose, need.need.bit_length(), length
    size = need.sizes[0]
    mib, memory = size.mib.bit_length(), size.memory.bit_length()
    cpus = size.cpus.bit_length()
    return size.cards, size.whole, mib, cpus, memory, length, work.resumable, need.bars
