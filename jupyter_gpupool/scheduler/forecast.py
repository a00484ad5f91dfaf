"""When the rest may start: list scheduling on the same timeline, event by event.

Owns: the virtual walk from one end, window edge or reservation to the next. Work that cannot start is parked
at what it lacks and tried again only when some of that frees; works of one shape wait in one line, and only
its head is tried (`parking`).
Never: a promise: nothing found here is reserved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush

from jupyter_gpupool.scheduler.board import Bars, Board
from jupyter_gpupool.scheduler.card import Card
from jupyter_gpupool.scheduler.lines import Claim, Lack, Purse
from jupyter_gpupool.scheduler.model import Mib, Placement, Promise, Reservation, Seconds, Start, Work
from jupyter_gpupool.scheduler.parking import Lane, Limit, Queue, Waiting, is_common
from jupyter_gpupool.scheduler.placement import Shelf
from jupyter_gpupool.scheduler.timeline import FOREVER, Profile

Event = tuple[Seconds, int, tuple[Card, ...], tuple[str, ...], tuple[Profile, ...]]
Room = tuple[int, Mib, int, Mib, Seconds]  # idle cards, MiB, CPUs, memory; until when

NO_ROOM: Room = (0, 0, 0, 0, 0)


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
        walk.expect_start(work, promise)
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
        self._timers: list[tuple[Seconds, int, Waiting]] = []
        self._paid: set[Profile] = set()
        self._edges = [(edge, name) for name in board.floor.lenders if (edge := self._edge(name))]
        self._left = 0
        self._limits: dict[Profile, Limit] = {}
        self._lanes: dict[tuple[Shelf, ...], Lane] = {}
        self._lanes_of: dict[Shelf, list[Lane]] = {}
        self._shelves_in: dict[str, dict[Shelf, None]] = {}
        self._rooms: dict[Shelf, dict[str, Room]] = {}

    def expect_end(self, claim: Claim, placement: Placement, end: Seconds) -> None:
        """Note that what a claim holds frees at `end`; by day that may let a job take any card lent there."""
        nodes, floor = placement.nodes, self._board.floor
        if claim.kind == "session" and placement.partition in floor.headrooms:
            nodes = floor.nodes_of(placement.partition)
        self._expect(end, self._cards(placement), nodes, tuple(self._board.limits.profiles(claim)))
        for early, profile in self._board.limits.early(claim):
            if end - early > self._board.time:
                self._expect(end - early, (), (), (profile,))

    def expect_start(self, work: Work, promise: Promise) -> None:
        """Note that a promise takes its cards at its start, and then keeps nobody from its group's quota."""
        profiles = tuple(self._board.limits.profiles(work))
        self._expect(promise.start, self._cards(promise.placement), (), profiles)

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
            options = self._board.options(work)
            self._turn(Waiting(rank, work, options))
        heapify(self._edges)
        while self._left and (self._events or self._timers or self._edges):
            heaps = (self._events, self._timers, self._edges)
            self._board.advance(min(heap[0][0] for heap in heaps if heap))
            nodes, profiles = self._take_events()
            self._take_edges(nodes)
            self._wake(nodes, profiles, self._take_timers())

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
        for profile in freer:
            profile.forget(board.time)
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

    def _take_timers(self) -> list[Waiting]:
        """Take all works whose back-off, window or budget allows a start from this moment on."""
        due = []
        while self._timers and self._timers[0][0] == self._board.time:
            due.append(heappop(self._timers)[2])
        return due

    def _wake(self, nodes: Collection[str], profiles: Iterable[Profile], due: Iterable[Waiting]) -> None:
        """Try those whose time has come and the heads of the queues where something frees, best first."""
        agenda = _Agenda()
        for waiting in due:
            agenda.add(waiting)
        for profile in profiles:
            limit = self._limits.get(profile)
            for queue in limit.ready(profile.at(self._board.time)) if limit else ():
                if queue.works:
                    agenda.add(queue.head, queue)
        self._rooms.clear()
        self._read(nodes)
        reached: dict[Limit | Lane, int] = {}
        for lane in dict.fromkeys(lane for shelf in self._rooms for lane in self._lanes_of.get(shelf, ())):
            self._go_on(lane, -1, reached, agenda)
        while agenda:
            waiting, found = agenda.next()
            if found is None:
                self._turn(waiting, nodes)
                continue
            if found.works and found.head is waiting and self._may_start(found):
                found.lack = None
                self._turn(waiting, nodes)
            if found.works and found.head.rank > waiting.rank:
                agenda.add(found.head, found)
            if isinstance(found.home, Lane) and reached.get(found.home) == waiting.rank:
                self._go_on(found.home, waiting.rank, reached, agenda)

    def _go_on(self, lane: Lane, rank: int, reached: dict[Limit | Lane, int], agenda: _Agenda) -> None:
        """Let the next of a lane, beyond `rank`, that may start be tried."""
        rooms = [room for shelf in lane.shelves for room in self._rooms.get(shelf, {}).values()]
        idle = max((cards for cards, *_ in rooms), default=0)
        for following, queue in lane.heads(rank) if self._rooms else ():
            if (queue.cards <= idle or queue.is_new) and self._may_start(queue):
                reached[lane] = following
                agenda.add(queue.head, queue)
                return

    def _read(self, nodes: Iterable[str]) -> None:
        """Note what is free on nodes, for each shelf that is there."""
        time = self._board.time
        for node in nodes:
            for shelf in self._shelves_in.get(node, ()):
                room = shelf.room(node, time) if shelf.open(time) else NO_ROOM
                if room[:2] != NO_ROOM[:2] or (room[2] and not shelf.bay.cards):
                    self._rooms.setdefault(shelf, {})[node] = room
                elif self._rooms.get(shelf, {}).pop(node, None) and not self._rooms[shelf]:
                    del self._rooms[shelf]

    def _may_start(self, queue: Queue) -> bool:
        """Say, at little cost, whether the head of a queue might start at this moment."""
        if isinstance(queue.home, Limit):
            return self._has_enough(queue.head, queue.home.lack(queue.head))
        if not queue.is_new:
            return self._may_fit(queue.head, queue.home.shelves)
        if queue.lack is not None and queue.lack.lacks_at(self._board.time):
            return False
        queue.lack, queue.tried = None, not self._is_hopeful(queue.head)
        return not queue.tried

    def _is_hopeful(self, waiting: Waiting) -> bool:
        """Say, at little cost, whether any cards could be had."""
        time, work = self._board.time, waiting.work
        return any(
            option.shelf.may_hold(option.size) and option.open_to(work, time) for option in waiting.options
        )

    def _has_enough(self, waiting: Waiting, lack: Lack) -> bool:
        """Say whether a limit has room for a work that waits there, as long as it would run."""
        time, work = self._board.time, waiting.work
        if lack.lacks_at(time):
            return False
        terms = (option.term(work, time) for option in waiting.options)
        backs = (term.back for term in terms if term is not None)
        return lack.line.fits(lack.need, time, min(time + work.limit, *backs, FOREVER))

    def _may_fit(self, waiting: Waiting, shelves: Collection[Shelf]) -> bool:
        """Say whether there is room for a work on some of the shelves, where something freed."""
        time, work = self._board.time, waiting.work
        end = time + work.limit
        for option in waiting.options:
            size = option.size
            rooms = self._rooms.get(option.shelf) if option.shelf in shelves else None
            for idle, mib, cpus, memory, until in rooms.values() if rooms else ():
                if (
                    (size.cards <= idle if size.whole else size.mib <= mib)
                    and size.cpus <= cpus
                    and size.memory <= memory
                    and end <= until
                    and option.open_to(work, time)
                ):
                    return True
        return False

    def _turn(self, waiting: Waiting, nodes: Collection[str] = ()) -> None:
        """Start a work at this moment, or let it wait at what it lacks; on `nodes` there is less then."""
        board, work = self._board, waiting.work
        gate = board.gate(work, board.time)
        if gate != board.time:
            self._put_off(waiting, gate)
            return
        found = board.attempt(work) if self._is_hopeful(waiting) else (None,) * len(waiting.options)
        if isinstance(found, Placement):
            self._start(work, found)
            waiting.move(())
            self._read(node for node in found.nodes if node in nodes)
        else:
            self._park(waiting, found)

    def _start(self, work: Work, placement: Placement) -> None:
        board = self._board
        end = board.end_of(work, placement, board.time)
        board.book(work, placement, board.time, end)
        self.expect_end(work, placement, end)
        self.found[work.id] = board.time, placement
        self._left -= 1

    def _put_off(self, waiting: Waiting, time: Seconds | None) -> None:
        """Try a work again at `time`; None: never."""
        waiting.move(())
        if time is None:
            self._left -= 1
        else:
            heappush(self._timers, (time, waiting.rank, waiting))

    def _park(self, waiting: Waiting, bars: Bars) -> None:
        """Let a work wait at each limit that bars it from some of its options, and for room in the others.

        Where all groups lack alike, that is as good as room.
        """
        if any(bars):
            bars = self._barred(waiting, bars)
        common = bars[0] if all(lack is not None and is_common(lack) for lack in bars) else None
        lacks = {lack.line.profile: lack for lack in bars if lack is not None and common is None}
        places = [self._limit(lack).queue(waiting, lack) for lack in lacks.values()]
        shelves = tuple(
            option.shelf
            for option, lack in zip(waiting.options, bars, strict=True)
            if lack is None or common is not None
        )
        if shelves:
            places.append(self._lane(shelves).queue(waiting))
        waiting.move(tuple(places))
        if common is not None and places[-1].head is waiting:
            self._limit(common).look_on(places[-1], common)
        for lack in lacks.values():
            if isinstance(lack.line, Purse):
                self._expect_periods(lack.line)

    def _expect_periods(self, purse: Purse) -> None:
        """Note that there is more of a budget whenever a period ends."""
        if purse.profile not in self._paid:
            self._paid.add(purse.profile)
            for end in purse.ends:
                if end > self._board.time:
                    self._expect(end, (), (), (purse.profile,))

    def _barred(self, waiting: Waiting, bars: Bars) -> Bars:
        """Add what bars a work also from cards that are not lent to it now: only a change there matters."""
        time = self._board.time
        found = zip(bars, waiting.options, strict=True)
        return tuple(
            option.lack(time, time + 1) if lack is None and option.term(waiting.work, time) is None else lack
            for lack, option in found
        )

    def _limit(self, lack: Lack) -> Limit:
        profile = lack.line.profile
        found = self._limits.get(profile)
        if found is None:
            found = self._limits[profile] = Limit()
        return found

    def _lane(self, shelves: tuple[Shelf, ...]) -> Lane:
        found = self._lanes.get(shelves)
        if found is None:
            found = self._lanes[shelves] = Lane(shelves)
            for shelf in shelves:
                self._lanes_of.setdefault(shelf, []).append(found)
                for site in shelf.bay.sites:
                    self._shelves_in.setdefault(site.node, {})[shelf] = None
        return found


class _Agenda:
    """Who is tried at one moment, best first, and in which queue he waits.

    Nobody is tried twice: at one moment there is only less and less.
    """

    def __init__(self) -> None:
        self._ranks: list[int] = []
        self._found: dict[int, tuple[Waiting, Queue | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._ranks)

    def add(self, waiting: Waiting, queue: Queue | None = None) -> None:
        """Add one, if he is not known."""
        if waiting.rank not in self._found:
            self._found[waiting.rank] = waiting, queue
            heappush(self._ranks, waiting.rank)

    def next(self) -> tuple[Waiting, Queue | None]:
        """Take the best one."""
        return self._found[heappop(self._ranks)]
