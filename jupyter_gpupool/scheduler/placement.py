"""Which cards.

Owns: the cards of one kind in one partition (`Bay`), what is free on them at the moment that is
being planned (`Shelf`), and the choice among them, now or later.
Never: whether the owner may have them (quota, limits), nor who comes first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field

from jupyter_gpupool.scheduler.card import NOBODY, Card, lasts
from jupyter_gpupool.scheduler.lending import Lender
from jupyter_gpupool.scheduler.model import Kind, Mib, Seconds
from jupyter_gpupool.scheduler.timeline import BEGIN, FOREVER, Interval, Profile, meet


@dataclass(slots=True, eq=False)
class Site:
    """The cards of one bay in one node, and the node's CPUs and memory (with its cards or alone)."""

    node: str
    cpus: Profile
    memory: Profile
    cards: list[Card] = field(default_factory=list)

    def fits(self, size: Size, start: Seconds, end: Seconds) -> bool:
        """Say whether the node's CPUs and memory allow `size` over [start, end)."""
        return self.cpus.fits(size.cpus, start, end) and self.memory.fits(size.memory, start, end)

    def openings(
        self, size: Size, length: Seconds, allowed: list[Interval], until: Seconds
    ) -> list[Interval]:
        """Return the part of `allowed` in which the node's CPUs and memory allow a start."""
        after = allowed[0][0]
        both = meet(
            self.cpus.openings(size.cpus, length, after, until),
            self.memory.openings(size.memory, length, after, until),
        )
        return meet(allowed, both)


@dataclass(frozen=True, slots=True)
class Size:
    """What a request needs in one bay: `cards` of `mib` each, and CPUs and memory in each node."""

    cards: int
    mib: Mib
    whole: bool
    cpus: int
    memory: Mib


class Bay:
    """Cards of one model and memory in one partition: any of them serves alike."""

    def __init__(self, partition: str, model: str, memory: Mib, sites: Sequence[Site]) -> None:
        self.partition = partition
        self.model = model
        self.memory = memory
        self.sites = list(sites)
        self.cards = [card for site in sites for card in site.cards]
        for number, site in enumerate(self.sites):
            for card in site.cards:
                card.site = number
        for order, card in enumerate(self.cards):
            card.order = order
        self.site_of = {site.node: site for site in self.sites}
        self.reservations = frozenset(found.id for card in self.cards for found in card.reservations)
        self._could: dict[Size, bool] = {}
        self.largest = max((len(site.cards) for site in self.sites), default=0)

    def has(self, card: Card) -> bool:
        """Say whether `card` is one of the bay's."""
        return 0 <= card.order < len(self.cards) and self.cards[card.order] is card

    def could_hold(self, size: Size) -> bool:
        """Say whether `size` fits when nothing else is here."""
        found = self._could.get(size)
        if found is None:
            found = self._could[size] = self._fits_empty(size)
        return found

    def _fits_empty(self, size: Size) -> bool:
        roomy = [
            len(site.cards)
            for site in self.sites
            if site.cpus.capacity >= size.cpus and site.memory.capacity >= size.memory
        ]
        if not roomy or size.mib > self.memory:
            return False
        if size.cards <= self.largest:
            return max(roomy) >= size.cards
        return whole_nodes(list(range(len(roomy))), roomy, size.cards) is not None


class Shelf:
    """What is free for one kind of work on the cards of a bay, at the moment that is being planned.

    The reservations `serving` keep cards for this work. Where a `lender` lends the cards, it says when work
    may start and must leave. `most_idle` is the largest number of wholly free cards in one node, `most_free`
    the largest free piece of one card.
    """

    def __init__(
        self,
        bay: Bay,
        kind: Kind,
        time: Seconds,
        serving: frozenset[int] = NOBODY,
        lender: Lender | None = None,
    ) -> None:
        self.bay = bay
        self.serving = serving
        self.lender = lender
        self._kind: Kind = kind
        self._free = [0] * len(bay.cards)
        self._partly: list[tuple[Mib, int]] = []
        self._idle: list[set[int]] = [set() for _ in bay.sites]
        self._by_count: list[set[int]] = [set() for _ in range(bay.largest + 1)]
        self.most_idle = 0
        self.most_free: Mib = 0
        self._chances: dict[bool, list[list[tuple[Seconds, int]]]] = {}
        self._order: dict[tuple[bool, int], list[tuple[Seconds, int]]] = {}
        self._read(time)

    def view(self, card: Card) -> Profile:
        """Return what is free on `card` for the kind of work that this shelf serves."""
        return card.view(self._kind, self.serving) if self.serving else card.views[self._kind]

    def free(self, card: Card, time: Seconds) -> Mib:
        """Return what is free on `card` at `time` for the work that this shelf serves."""
        return max(0, card.free(self._kind, self.serving, time))

    def lasts(self, card: Card, time: Seconds) -> Seconds:
        """Return until when something stays free on `card`; for ever if to the hand-back."""
        if card.only_frees:
            return FOREVER
        until = FOREVER if self.lender is None else self.lender.hand_back(time)
        return lasts(self.view(card), time, until)

    def open(self, time: Seconds) -> bool:
        """Say whether some work may start here at `time`."""
        return self.lender is None or self.lender.open(time)

    def refresh(self, card: Card, time: Seconds) -> None:
        """Take note of what is free on `card` at `time`."""
        free, old, order = self.free(card, time), self._free[card.order], card.order
        if free == old:
            return
        self._free[order] = free
        if old == card.memory:
            self._move(card, idle=False)
        elif old:
            del self._partly[bisect_left(self._partly, (old, order))]
        if free == card.memory:
            self._move(card, idle=True)
        elif free:
            insort(self._partly, (free, order))
        self._note_most()

    def forget_chances(self) -> None:
        """Take note that a lease may end sooner than was known."""
        self._chances.clear()
        self._order.clear()

    def idle(self) -> int:
        """Return how many cards are wholly free."""
        return sum(map(len, self._idle))

    def open_sites(self) -> Iterator[tuple[Site, int, Mib, list[Card]]]:
        """Yield each node with something free: how many idle cards, the largest piece, the free cards."""
        orders: dict[int, list[int]] = {}
        for _, order in self._partly:
            orders.setdefault(self.bay.cards[order].site, []).append(order)
        for number, cards in enumerate(self._idle):
            found = [*cards, *orders.get(number, ())]
            if found:
                mib = self.bay.memory if cards else self._free[found[-1]]
                yield self.bay.sites[number], len(cards), mib, [self.bay.cards[order] for order in found]

    def serves(self, node: str) -> bool:
        """Say whether the bay has cards (or CPU-only work) in `node`."""
        return node in self.bay.site_of

    def room(self, node: str, time: Seconds) -> tuple[int, Mib, int, Mib, Seconds]:
        """Return what is free in one node: idle cards, the largest piece of one, CPUs and memory; until when.

        A node that is wholly idle counts as any number of cards: several may be taken together.
        """
        site = self.bay.site_of[node]
        free = [self._free[card.order] for card in site.cards]
        idle = sum(1 for mib in free if mib == self.bay.memory)
        counted = idle if idle < len(free) else len(self.bay.cards)
        lasts = [self.lasts(card, time) for card, mib in zip(site.cards, free, strict=True) if mib]
        until = max(lasts, default=time) if site.cards else FOREVER
        return counted, max(free, default=0), site.cpus.at(time), site.memory.at(time), until

    def may_hold(self, size: Size) -> bool:
        """Say, at little cost, whether `size` could fit at this moment."""
        if not size.cards:
            return True
        if not size.whole:
            return self.most_free >= size.mib
        return self.most_idle >= min(size.cards, self.bay.largest)

    def pick(self, size: Size, start: Seconds, end: Seconds) -> list[tuple[Site, list[Card]]] | None:
        """Choose nodes and cards that are free over all of [start, end), from what is free at this moment.

        Cards that are reserved for this work come first.
        """
        if not size.cards:
            return self._pick_node(size, start, end)
        if not self.may_hold(size):
            return None
        if size.cards > self.bay.largest:
            return self._pick_nodes(size, start, end)
        if self.serving:
            reserved = {card.order for card in self.bay.cards if card.reserved(self.serving, start)}
            found = self._pick_among(size, start, end, reserved)
            if found is not None:
                return found
        return self._pick_among(size, start, end, None)

    def _pick_among(
        self, size: Size, start: Seconds, end: Seconds, among: Set[int] | None
    ) -> list[tuple[Site, list[Card]]] | None:
        if size.whole:
            return self._pick_cards(size, start, end, among)
        return self._pick_share(size, start, end, among)

    def _pick_node(self, size: Size, start: Seconds, end: Seconds) -> list[tuple[Site, list[Card]]] | None:
        sites = [site for site in self.bay.sites if site.fits(size, start, end)]
        if not sites:
            return None
        return [(min(sites, key=lambda site: site.cpus.at(start)), [])]

    def _pick_share(
        self, size: Size, start: Seconds, end: Seconds, among: Set[int] | None
    ) -> list[tuple[Site, list[Card]]] | None:
        for position in range(bisect_left(self._partly, (size.mib, -1)), len(self._partly)):
            card = self.bay.cards[self._partly[position][1]]
            if among is not None and card.order not in among:
                continue
            site = self.bay.sites[card.site]
            if self.view(card).fits(size.mib, start, end) and site.fits(size, start, end):
                return [(site, [card])]
        return self._pick_cards(size, start, end, among)

    def _pick_cards(
        self, size: Size, start: Seconds, end: Seconds, among: Set[int] | None
    ) -> list[tuple[Site, list[Card]]] | None:
        """Take idle cards of one node: linked ones if any node has them, of the node with the fewest idle."""
        scattered: list[tuple[Site, list[Card]]] | None = None
        for count in range(size.cards, self.bay.largest + 1):
            for number in sorted(self._by_count[count]):
                site = self.bay.sites[number]
                idle = self._idle[number] if among is None else self._idle[number] & among
                cards = [
                    card
                    for order in sorted(idle)
                    if self.view(card := self.bay.cards[order]).fits(size.mib, start, end)
                ]
                if len(cards) < size.cards or not site.fits(size, start, end):
                    continue
                chosen, linked = choose_linked(cards, size.cards)
                if linked:
                    return [(site, chosen)]
                scattered = scattered or [(site, chosen)]
        return scattered

    def _pick_nodes(self, size: Size, start: Seconds, end: Seconds) -> list[tuple[Site, list[Card]]] | None:
        whole = [
            number
            for number, site in enumerate(self.bay.sites)
            if len(self._idle[number]) == len(site.cards)
            and site.fits(size, start, end)
            and all(self.view(card).fits(size.mib, start, end) for card in site.cards)
        ]
        return self._take_nodes(whole, size)

    def _take_nodes(self, numbers: list[int], size: Size) -> list[tuple[Site, list[Card]]] | None:
        sites = self.bay.sites
        taken = whole_nodes(numbers, [len(sites[number].cards) for number in numbers], size.cards)
        return None if taken is None else [(sites[number], sites[number].cards) for number in taken]

    def soonest(self, size: Size) -> Seconds:
        """Return a time before which leases leave no room for `size`."""
        if not 0 < size.cards <= self.bay.largest:
            return BEGIN
        chances = self._by_chance(size)
        return chances[0][0] if chances else FOREVER

    def earliest(
        self,
        size: Size,
        length: Seconds,
        allowed: list[Interval],
        before: Seconds,
        nodes: Collection[str] | None = None,
        until: Seconds = FOREVER,
    ) -> tuple[Seconds, list[tuple[Site, list[Card]]]] | None:
        """Find the first start within `allowed`, sooner than `before`, and the cards for it.

        The work leaves by `until`, if that is before its length is over.
        Work of one node is looked for in `nodes` only, if they are given, on cards that may be free sooner
        than their leases said.
        """
        if not size.cards:
            return self._earliest_node(size, length, allowed, before, until)
        if size.cards > self.bay.largest:
            return self._earliest_nodes(size, length, allowed, before, until)
        best: tuple[Seconds, list[tuple[Site, list[Card]]]] | None = None
        before = min(before, allowed[-1][1] + 1)
        chances = self._chances_of(size.whole)
        for bound, number in self._by_chance(size) if nodes is None else self._among(nodes):
            if bound >= before:
                break
            hopeful = [order for chance, order in chances[number] if chance < before or nodes is not None]
            cards = [self.bay.cards[order] for order in hopeful]
            views = [self.view(card).openings(size.mib, length, allowed[0][0], until) for card in cards]
            if sum(1 for view in views if view and view[0][0] < before) < size.cards:
                continue
            site = self.bay.sites[number]
            opened = site.openings(size, length, allowed, until)
            found = _first_common([meet(opened, view) for view in views], size.cards, before)
            if found is not None:
                before, indices = found
                common = sorted((cards[index] for index in indices), key=lambda card: card.order)
                best = before, [(site, choose_linked(common, size.cards)[0])]
        return best

    def _earliest_node(
        self, size: Size, length: Seconds, allowed: list[Interval], before: Seconds, until: Seconds
    ) -> tuple[Seconds, list[tuple[Site, list[Card]]]] | None:
        best: tuple[Seconds, list[tuple[Site, list[Card]]]] | None = None
        for site in self.bay.sites:
            opened = site.openings(size, length, allowed, until)
            if opened and opened[0][0] < before:
                before = opened[0][0]
                best = before, [(site, [])]
        return best

    def _earliest_nodes(
        self, size: Size, length: Seconds, allowed: list[Interval], before: Seconds, until: Seconds
    ) -> tuple[Seconds, list[tuple[Site, list[Card]]]] | None:
        openings = []
        for site in self.bay.sites:
            opened = site.openings(size, length, allowed, until)
            for card in site.cards:
                if opened:
                    opened = meet(opened, self.view(card).openings(size.mib, length, opened[0][0], until))
            openings.append(opened)
        for start in sorted({first for opened in openings for first, _ in opened}):
            if start >= before:
                return None
            numbers = [n for n, opened in enumerate(openings) if _contains(opened, start)]
            taken = self._take_nodes(numbers, size)
            if taken is not None:
                return start, taken
        return None

    def _by_chance(self, size: Size) -> list[tuple[Seconds, int]]:
        """Sort the nodes by when, at the soonest, their leases could leave enough cards free."""
        key = size.whole, size.cards
        found = self._order.get(key)
        if found is None:
            chances = self._chances_of(size.whole)
            found = self._order[key] = sorted(
                (sooner[size.cards - 1][0], number)
                for number, sooner in enumerate(chances)
                if len(sooner) >= size.cards
            )
        return found

    def _among(self, nodes: Collection[str]) -> list[tuple[Seconds, int]]:
        """Number these nodes, without a bound on when they could serve."""
        return [(0, number) for number, site in enumerate(self.bay.sites) if site.node in nodes]

    def _chances_of(self, whole: bool) -> list[list[tuple[Seconds, int]]]:
        """List, for each node, its cards by when their leases could leave something (or all) free."""
        found = self._chances.get(whole)
        if found is None:
            found = self._chances[whole] = [
                sorted((card.first_chance(whole), card.order) for card in site.cards)
                for site in self.bay.sites
            ]
        return found

    def _read(self, time: Seconds) -> None:
        """Take note of what is free on all cards."""
        for card in self.bay.cards:
            free = self.free(card, time)
            self._free[card.order] = free
            if free == card.memory:
                self._idle[card.site].add(card.order)
            elif free:
                self._partly.append((free, card.order))
        self._partly.sort()
        for number, cards in enumerate(self._idle):
            self._by_count[len(cards)].add(number)
        self._note_most()

    def _note_most(self) -> None:
        count = self.bay.largest
        while count and not self._by_count[count]:
            count -= 1
        self.most_idle = count
        if count:
            self.most_free = self.bay.memory
        else:
            self.most_free = self._partly[-1][0] if self._partly else 0

    def _move(self, card: Card, *, idle: bool) -> None:
        cards = self._idle[card.site]
        self._by_count[len(cards)].discard(card.site)
        (cards.add if idle else cards.discard)(card.order)
        self._by_count[len(cards)].add(card.site)


def choose_linked(cards: list[Card], count: int) -> tuple[list[Card], bool]:
    """Take `count` of one node's `cards`, and say whether they are linked.

    They are of the smallest link group that has so many; where none has, the largest groups go first.
    """
    if count == len(cards) == 1:
        return cards, True
    groups: dict[str, list[Card]] = {}
    for card in cards:
        groups.setdefault(card.gpu.link_group, []).append(card)
    enough = [group for group in groups.values() if len(group) >= count]
    if enough:
        return min(enough, key=len)[:count], True
    largest_first = sorted(groups.values(), key=len, reverse=True)
    return [card for group in largest_first for card in group][:count], False


def whole_nodes(numbers: list[int], sizes: list[int], cards: int) -> list[int] | None:
    """Choose whole nodes (`sizes` cards each) that have exactly `cards` together, the first that do."""
    ways: dict[int, list[int]] = {0: []}
    for number, size in zip(numbers, sizes, strict=True):
        for total, taken in list(ways.items()):
            if total + size <= cards:
                ways.setdefault(total + size, [*taken, number])
        if cards in ways:
            return ways[cards]
    return None


def _first_common(
    openings: list[list[Interval]], count: int, before: Seconds
) -> tuple[Seconds, list[int]] | None:
    """Find the first time before `before` that lies in `count` of the lists, and which those are."""
    for start in sorted({first for opened in openings for first, _ in opened if first < before}):
        indices = [index for index, opened in enumerate(openings) if _contains(opened, start)]
        if len(indices) >= count:
            return start, indices
    return None


def _contains(opened: list[Interval], time: Seconds) -> bool:
    return any(first <= time <= last for first, last in opened)
