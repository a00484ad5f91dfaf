"""Which works a fast pass must look at.

Owns: cheap necessary conditions for a start now; whoever fails one cannot start, whatever the order.
Never: a decision: what is listed is tried like anything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, takewhile

from jupyter_gpupool.scheduler.bars import may_be_promised
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.clearing import Clearing
from jupyter_gpupool.scheduler.model import Placement, Promise, Request, Seconds, Work
from jupyter_gpupool.scheduler.precedence import Precedence
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.queued import Queued, first, takes_part
from jupyter_gpupool.scheduler.quota import CPUS, GPU, UNBOUNDED
from jupyter_gpupool.scheduler.rooms import Room, Rooms, largest_of
from jupyter_gpupool.scheduler.stopping import Amounts
from jupyter_gpupool.scheduler.timeline import FOREVER

FEW = 8
"""So many works are tried at once, rather than looked at first."""


class Shortlist:
    """The works of one snapshot that could start now, looked for only as far as needed."""

    def __init__(
        self, board: Board, promises: Promises, clearing: Clearing, precedence: Precedence, queued: Queued
    ) -> None:
        self._board = board
        self._promises = promises
        self._clearing = clearing
        self._precedence = precedence
        self._queued = queued
        self._few = len(board.snapshot.waiting) <= FEW
        self._inside: set[str] = set()
        self._found: Work | None = None
        self._eased = False
        self._reserved: tuple[Promise, ...] | None = None
        self._carried = [*promises.carried.values()]
        self._owing: dict[int, Amounts] = {}
        self.look_again()

    @cached_property
    def _largest(self) -> int:
        return max((shelf.bay.largest for shelf in self._board.floor.shelves("job")), default=0)

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
        chosen = {tops[work.group] for work in self._carried}
        for work in self._listed():
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
            self._begin()

    def _begin(self) -> None:
        """Look at all works anew."""
        self._eased = False
        self._found = None
        self._no_cards: dict[Request, Seconds] = {}
        self._search = self._candidates()

    def ease(self) -> None:
        """Take note of a promise that came sooner: some of the room may last longer now."""
        self._eased = True
        self._measure()

    def _measure(self) -> None:
        self._is_measured = True
        self._due = self._promises.any_due()
        self._takers: dict[int, bool] = {}
        self._modest: list[Work] | None = None
        if not self._few:
            self._rooms = self._read()
            self._roomier: dict[int | None, Rooms] = {}
            self._roomiest = self._without_any()

    def matters(self, work: Work) -> bool:
        """Say whether something could come of the turn of a job."""
        return (
            work.id in self._promises.carried
            or self._promises.open_to(work.group)
            or self._looks_hopeful(work)
        )

    def candidate(self) -> Work | None:
        """Return some work that could start at this moment, if it had its turn; None when none could."""
        if self._found is not None and (self._had_its_turn(self._found) or self._has_no_chance(self._found)):
            self._found = None
        self._is_measured = False
        if self._found is None:
            self._found = next(self._search, None)
            if self._found is None and self._eased:
                self._begin()
                self._found = next(self._search, None)
        return self._found

    def ranks(self, work: Work) -> bool:
        """Say whether `work` is among those that `choose` returned."""
        return work.group in self._inside

    def any_fits(self, works: Iterable[Work]) -> bool:
        """Say whether some of these jobs, which were passed over, fit at this moment."""
        return any(work.kind == "job" and self._could_start(work) and self._fits(work) for work in works)

    # -- who is looked at

    def _candidates(self) -> Iterator[Work]:
        """Yield those that could start, each as long as it has not had its turn."""
        for work in self._carried:
            if self._waits(work) and self._is_due(work):
                yield work
        for work in self._fitting():
            if (
                self._waits(work)
                and self._could_start(work)
                and self._may_find_cards(work)
                and self._fits(work)
            ):
                yield work
        yield from self._overtaking()
        yield from self._taking()

    def _had_its_turn(self, work: Work) -> bool:
        return work.id in self._precedence.ahead

    def _waits(self, work: Work) -> bool:
        return not self._had_its_turn(work)

    def _listed(self) -> Iterator[Work]:
        """Yield, without trying any, all that could start or for whom others could be asked to stop."""
        yield from self._fitting()
        yield from self._going_first()
        yield from self._owed()

    def _fitting(self) -> Iterator[Work]:
        """Yield the jobs for which there is room, the promised ones apart if it does not last."""
        if self._few:
            return filter(takes_part, self._board.snapshot.waiting)
        return chain(self._queued.fitting(self._lasting), self._promises.carried.values())

    def _going_first(self) -> Iterator[Work]:
        """Yield the jobs that may go before promises, where there would be room without any."""
        if self._few:
            yield from filter(takes_part, self._board.snapshot.waiting)
            return
        for (request, priority), entries in self._queued.alike.items():
            if self._precedence.pays(priority) and self._could_hold(request):
                yield from first(entries, FOREVER)
        if self._precedence.any_borrows():
            for work in self._within_quota():
                if not self._precedence.pays(work.priority) and self._could_hold(work.request):
                    yield work

    def _owed(self) -> Iterator[Work]:
        """Yield the jobs whose group has cards left of its own, and those of classes that preempt."""
        if not self._clearing.anybody:
            return
        if self._few:
            yield from filter(takes_part, self._board.snapshot.waiting)
            return
        yield from self._within_quota()
        for (_, priority), entries in self._queued.alike.items():
            if self._clearing.preempts(priority):
                yield from first(entries, FOREVER)

    def _within_quota(self) -> list[Work]:
        """Return the jobs whose cards are within what their group has left of its own."""
        if self._modest is None:
            inside, at_least = self._board.limits.inside, self._at_least
            self._modest = [
                work
                for entries in self._queued.of_group.values()
                for _, _, work in takewhile(lambda one: inside(one[2].group, at_least(one[0])), entries)
            ]
        return self._modest

    def _at_least(self, cards: int) -> Amounts:
        """Return what whoever asks for so many cards takes at the least."""
        found = self._owing.get(cards)
        if found is None:
            nothing = dict.fromkeys(self._board.limits.resources, 0)
            found = self._owing[cards] = {**nothing, GPU: 1000 * cards}
        return found

    # -- what is found about one

    def _has_no_chance(self, work: Work) -> bool:
        """Say whether what could start cannot any more, where there may be less room since."""
        return self._is_measured and not (self._is_due(work) or self._looks_hopeful(work))

    def _looks_hopeful(self, work: Work) -> bool:
        return self._could_start(work) or (self._clearing.anybody and self._could_take(work))

    def _overtaking(self) -> Iterator[Work]:
        """Yield those that would start before promises that give way to them.

        First they are tried without all promises that could give way to any of a price.
        """
        precedence, promises = self._precedence, self._promises
        by_price: defaultdict[int | None, list[Work]] = defaultdict(list)
        for work in self._going_first():
            if self._waits(work) and self._may_overtake(work):
                by_price[precedence.price(work)].append(work)
        hopeful: list[Work] = []
        for price, works in by_price.items():
            with promises.without(promises.reserved(partial(precedence.may_give_way, price=price))):
                hopeful += filter(self._fits, works)
        for work in filter(self._waits, hopeful):
            with promises.without(promises.reserved(partial(precedence.overtakes, work))):
                fits = self._fits(work)
            if fits:
                yield work

    def _taking(self) -> Iterator[Work]:
        """Yield those for whom there would be room if others were asked to stop."""
        left = [work for work in self._owed() if self._waits(work) and self._could_take(work)]
        while left:
            whose = [self._precedence.before_whom(work) for work in left]
            alike = [work for work, before in zip(left, whose, strict=True) if before == whose[0]]
            lifted = self._promises.reserved(partial(self._precedence.takes_back, left[0]))
            with self._promises.without(lifted):
                takes = (number for number, work in enumerate(alike) if self._would_take(work, lifted))
                found = next(takes, len(alike))
            failed = {work.id for work in alike[:found]}
            left = [work for work in left if work.id not in failed]
            if found < len(alike):
                yield alike[found]
                left.remove(alike[found])

    def _fits(self, work: Work) -> bool:
        """Say whether `work` fits at this moment, without its own promise."""
        board, own = self._board, self._promises.get(work.id)
        if board.gate(work, board.time) != board.time:
            return False
        with self._promises.without([own] if own else []):
            found = board.attempt(work)
        if isinstance(found, Placement):
            return True
        if not any(found) and self._is_plain(work):
            self._no_cards[work.request] = min(work.limit, self._no_cards.get(work.request, FOREVER))
        return False

    def _may_find_cards(self, work: Work) -> bool:
        """Say whether cards may be free for a job for which a like one found none: its promise keeps some."""
        shortest = self._no_cards.get(work.request, FOREVER)
        return work.limit < shortest or self._promises.get(work.id) is not None

    def _is_plain(self, work: Work) -> bool:
        """Say whether the cards that `work` could have are those that all could have who ask for as much."""
        board = self._board
        options = board.options(work)
        return (
            not board.snapshot.reservations
            and len(options) == len(board.floor.shape(work).fits)
            and all(option.shelf.lender is None for option in options)
        )

    def _could_take(self, work: Work) -> bool:
        """Say whether others could be asked to stop for `work`."""
        found = self._takers.get(work.id)
        if found is None:
            found = self._takers[work.id] = self._is_taker(work)
        return found

    def _is_taker(self, work: Work) -> bool:
        board = self._board
        return (
            takes_part(work)
            and work.not_before <= board.time
            and self._may_run_more(work)
            and self._clearing.may_take(work, self._promises.get(work.id))
            and board.gate(work, board.time) == board.time
            and may_be_promised(board, work)
        )

    def _would_take(self, work: Work, lifted: Collection[Promise]) -> bool:
        """Look whether there is room, sooner than is promised to `work`, if others are asked to stop.

        The promises that give way to it are `lifted`.
        """
        own = self._promises.get(work.id)
        with self._promises.without([own] if own else []):
            if lifted and isinstance(self._board.attempt(work), Placement):
                return True
            room = self._clearing.room(work)
        return room is not None and (own is None or room.start < own.start)

    def _could_start(self, work: Work) -> bool:
        if not takes_part(work):
            return False
        if self._few:
            return True
        if self._is_barred(work):
            return False
        if self._fits_in(work, self._rooms):
            return True
        return self._fits_in(work, self._roomiest) and self._fits_in(work, self._rooms_for(work))

    def _is_barred(self, work: Work) -> bool:
        """Say whether its group has all that it could ever have, its user enough jobs, or it rests."""
        request = work.request
        resource = GPU if request.gpus or request.gpu_mib or request.share else CPUS
        taken = self._board.roster.taken[work.group][resource]
        return (
            work.not_before > self._board.time
            or taken >= self._board.limits.potential(work.group, resource)
            or not self._may_run_more(work)
        )

    def _may_overtake(self, work: Work) -> bool:
        """Say whether a job could go before some promise, and would fit at this moment."""
        return (
            self._promises.get(work.id) is None
            and not self._is_barred(work)
            and self._precedence.may_overtake(work)
            and (self._due or self._board.fits_for_a_moment(work))
        )

    def _fits_in(self, work: Work, rooms: Rooms) -> bool:
        """Say whether there is room for a job, for as long as it lasts if it has no promise."""
        if work.request.gpu_mib > rooms.mib:
            return False
        promised = work.id in self._promises.carried
        serving = self._board.floor.serving(work.group, work.user)
        return any(
            self._suits(work.request, room)
            and room.serving <= serving
            and (promised or work.limit <= self._lasts(work.request, room))
            for room in rooms.each
        )

    def _suits(self, request: Request, room: Room) -> bool:
        """Say whether there is room for a request at this moment; of a larger one, for one node's part."""
        return (
            min(request.gpus, self._largest) <= room.idle
            and request.gpu_mib <= room.mib
            and (
                request.gpus > self._largest
                or (request.cpus_milli <= room.cpus and request.memory_mib <= room.memory)
            )
        )

    def _lasts(self, request: Request, room: Room) -> Seconds:
        return room.lasts[max(min(request.gpus, self._largest), 1) - 1]

    def _lasting(self, request: Request) -> Seconds:
        """Return for how long there is room for a request; less than nothing where there is none."""
        rooms = self._rooms.each
        return max((self._lasts(request, room) for room in rooms if self._suits(request, room)), default=-1)

    def _could_hold(self, request: Request) -> bool:
        """Say whether there would be room for a request without any promise."""
        return any(self._suits(request, room) for room in self._roomiest.each)

    def _without_any(self) -> Rooms:
        """Return no less than what is free without any promise, for ever.

        Where one is due all may be free; on lent cards also what is kept for sessions.
        """
        due = [one for one in self._promises.all() if one.start <= self._board.time]
        nodes = {node for one in due for node in one.placement.nodes}
        lent = {one.placement.partition for one in due} & self._board.floor.lenders.keys()
        rooms = [replace(room, lasts=(FOREVER,) * len(room.lasts)) for room in self._rooms.each]
        for bay in self._board.floor.bays if due else ():
            for site in bay.sites:
                if site.node in nodes or bay.partition in lent:
                    cards, most = len(site.cards), (FOREVER,) * max(1, len(site.cards))
                    rooms.append(Room(cards, bay.memory, UNBOUNDED, site.memory.capacity, most))
        return largest_of(rooms)

    def _rooms_for(self, work: Work) -> Rooms:
        """Return what is free, for a job that goes before promises without those that might give way."""
        if not self._precedence.may_overtake(work):
            return self._rooms
        price = self._precedence.price(work)
        found = self._roomier.get(price)
        if found is None:
            lifted = self._promises.reserved(partial(self._precedence.may_give_way, price=price))
            with self._promises.without(lifted):
                found = self._roomier[price] = self._read()
        return found

    def _is_due(self, work: Work) -> bool:
        """Say whether a job is promised for now, so that it is tried in any case."""
        promise = self._promises.get(work.id)
        return promise is not None and promise.start <= self._board.time

    def _may_run_more(self, work: Work) -> bool:
        """Say whether the user has a job left to start, where that is known."""
        if self._few:
            return True
        running = self._board.roster.running[work.group, work.user]
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
        return largest_of(self._each())

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
