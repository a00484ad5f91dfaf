"""The machines: cards, nodes, and what of them a request could use.

Owns: the cards and the nodes' CPUs and memory on the timeline, laid out in bays; the shape of a request
in each bay that suits it; which of the cards are lent or reserved.
Never: who may have them (`limits`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from jupyter_gpupool.scheduler import quota
from jupyter_gpupool.scheduler.card import NOBODY, Card
from jupyter_gpupool.scheduler.headroom import Headroom
from jupyter_gpupool.scheduler.lending import Lender, lenders
from jupyter_gpupool.scheduler.lines import Booking, Claim
from jupyter_gpupool.scheduler.model import (
    Gpu,
    Kind,
    Lease,
    Mib,
    Placement,
    Request,
    Reservation,
    Seconds,
    Snapshot,
    Work,
)
from jupyter_gpupool.scheduler.placement import Bay, Shelf, Site, Size
from jupyter_gpupool.scheduler.recall import Recall
from jupyter_gpupool.scheduler.roster import Turnover
from jupyter_gpupool.scheduler.timeline import BEGIN, Profile


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What a request takes in one bay; `amounts` of each resource that a group is owed."""

    bay: Bay
    size: Size
    gpu_milli: int
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A request on the machines: the bays that could hold it when empty.

    `amounts` is what it counts in the first of them, or else in the first that suits it, be that away.
    """

    fits: tuple[Fit, ...]
    amounts: Mapping[str, int]


class Floor:
    """The machines of one snapshot, at the moment `time`; `turn_to` lays its leases on them."""

    def __init__(self, snapshot: Snapshot, now: Seconds, resources: Sequence[str]) -> None:
        self.time = now
        self._snapshot = snapshot
        self._resources = resources
        self.lenders = lenders(snapshot)
        self._reservations = _by_card(snapshot.reservations, now)
        self._serving: dict[tuple[str, str], frozenset[int]] = {}
        self._kinds = self._seen_by()
        self.cards = {gpu.uuid: self._card(gpu) for gpu in snapshot.gpus}
        self._nodes = {
            node.name: (Profile(node.cpus_milli), Profile(node.memory_mib)) for node in snapshot.nodes
        }
        usable = {node.name for node in snapshot.nodes if node.available}
        present = [card for card in self.cards.values() if card.gpu.available and card.gpu.node in usable]
        self._complete = len(present) == len(self.cards) and len(usable) == len(snapshot.nodes)
        self.bays = self._lay_out(present, usable)
        self._shapes: dict[tuple[Kind, Request], Shape] = {}
        self._shape_of: Recall[Shape] = Recall()
        self._servings: set[frozenset[int]] | None = None
        self._shelves: dict[tuple[int, Kind, frozenset[int]], Shelf] = {}
        self._seats: dict[int, tuple[Card, ...]] = {}
        self._on_node: dict[str, dict[int, tuple[Seconds, int, Mib]]] = {name: {} for name in self._nodes}
        self._touched: set[Card] = set()
        self._touched_nodes: set[str] = set()
        self._reserved = {card for card in self.cards.values() if card.reservations and card.in_bay}
        self.headrooms = self._headrooms()

    def serves_also(self, snapshot: Snapshot, now: Seconds) -> bool:
        """Say whether these are the machines of another snapshot too, so that `turn_to` will do."""
        mine = self._snapshot
        return (
            mine.gpus is snapshot.gpus
            and mine.nodes is snapshot.nodes
            and mine.partitions is snapshot.partitions
            and mine.windows is snapshot.windows
            and mine.settings is snapshot.settings
            and mine.reservations == snapshot.reservations
            and not any(self.time < one.end <= now for one in snapshot.reservations)
            and self.time <= now
        )

    def turn_to(
        self,
        snapshot: Snapshot,
        now: Seconds,
        turnover: Turnover,
        end_of: Callable[[Lease], Seconds],
        kept: Sequence[Booking] = (),
    ) -> None:
        """Lay out the leases of a snapshot of these machines.

        Parameters
        ----------
        now
            Not before the `now` of the snapshot that was laid out last.
        turnover
            How its leases differ from those that were laid out last.
        end_of
            The expected end of a lease.
        kept
            All that is booked still; it is for later than `now`.
        """
        self._snapshot, self.time = snapshot, now
        self._servings = None
        self._shape_of.trim(len(snapshot.waiting))
        for lease in turnover.gone:
            self._unseat(lease)
        for lease in turnover.come:
            self._seat(lease, end_of(lease))
        for node in self._touched_nodes:
            self._reset_node(node)
        changed = self._touched | self._reserved
        for card in changed:
            card.reset()
            self.refresh(card)
        for claim, placement, start, end in kept:
            for card, mib in self._taken(claim, placement):
                if card in changed:
                    card.book(claim.kind, start, end, mib)
            self._book_nodes(claim, placement, start, end, 1, self._touched_nodes)
        for shelf in self._shelves.values() if self._touched else ():
            shelf.forget_chances()
        self._touched.clear()
        self._touched_nodes.clear()
        for headroom in self.headrooms.values():
            headroom.forget()

    def shape(self, work: Work) -> Shape:
        """Resolve a request; equal ones share the answer."""
        found = self._shape_of.of(work)
        if found is None:
            key = work.kind, work.request
            found = self._shapes.get(key)
            if found is None:
                found = self._shapes[key] = self._resolve(*key)
            self._shape_of.keep(work, found)
        return found

    def suits(self, kind: Kind, request: Request, bay: Bay) -> bool:
        """Say whether a bay is of the right purpose, partition and type, whatever is free in it."""
        lender = self.lender(kind, bay)
        if lender is None and kind not in self._snapshot.partitions[bay.partition].kinds:
            return False
        if request.partition not in (None, bay.partition, lender and lender.lend.to):
            return False
        if lender is not None and not bay.memory:
            return False
        if not (request.gpus or request.gpu_mib or request.share):
            return bay.memory == 0
        types = request.gpu_types
        return bay.memory > 0 and (not types or any(quota.is_type(bay.model, type_) for type_ in types))

    def lender(self, kind: Kind, bay: Bay) -> Lender | None:
        """Return who lends a bay's cards to work of `kind`; None where it needs nobody's leave."""
        return self.lenders.get(bay.partition) if kind == "job" else None

    def nodes_of(self, partition: str) -> tuple[str, ...]:
        """Return the nodes with cards of a partition."""
        sites = (
            site.node for bay in self.bays if bay.partition == partition and bay.memory for site in bay.sites
        )
        return tuple(dict.fromkeys(sites))

    def serving(self, group: str, user: str) -> frozenset[int]:
        """Return the reservations that keep cards for work of this group and user."""
        if not self._reservations:
            return NOBODY
        found = self._serving.get((group, user))
        if found is None:
            known = self._snapshot.reservations
            found = frozenset(one.id for one in known if one.serves(group, user))
            self._serving[group, user] = found
        return found

    def fit(self, request: Request, bay: Bay) -> Fit:
        """Return what a request takes of cards and nodes in a bay; CPUs in real cores."""
        shared = bool(request.gpu_mib or request.share) and not request.gpus
        cards = request.gpus or int(shared)
        nodes = -(-cards // bay.largest) if cards > bay.largest > 0 else 1
        cpus, memory = self._per_node(request, bay.partition, nodes)
        size = Size(cards, quota.card_need(request, bay.memory), bool(request.gpus), cpus, memory)
        milli = quota.gpu_charge(request, bay.memory) if cards else 0
        return Fit(bay, size, milli, self._amounts(request, milli, bay.model))

    def everything(self) -> list[Bay]:
        """Lay out all cards, those that are away for now included."""
        if self._complete:
            return self.bays
        return self._lay_out([self._card(gpu) for gpu in self._snapshot.gpus], self._nodes)

    def shelf(self, bay: Bay, kind: Kind, serving: frozenset[int] = NOBODY) -> Shelf:
        """Return what is free in a bay at this moment for one kind of work, for which cards may be kept."""
        own = serving & bay.reservations
        key = id(bay), kind, own
        found = self._shelves.get(key)
        if found is None:
            found = self._shelves[key] = Shelf(bay, kind, self.time, own, self.lender(kind, bay))
        return found

    def shelves(self, kind: Kind) -> list[Shelf]:
        """Return what is free now in the bays that serve one kind of work, and for whom it is kept."""
        if self._servings is None:
            waiting = self._snapshot.waiting if self._reservations else ()
            self._servings = {NOBODY, *(self.serving(work.group, work.user) for work in waiting)}
        bays = [bay for bay in self.bays if self._open(kind, bay)]
        return [
            self.shelf(bay, kind, own)
            for bay in bays
            for own in {one & bay.reservations for one in self._servings}
        ]

    def hold(self, claim: Claim, placement: Placement, end: Seconds) -> None:
        """Take what work that starts has until `end`."""
        for card, mib in self._taken(claim, placement):
            self._touched.add(card)
            self._count(card, 0, end, -1)
            card.hold(claim.kind, end, mib)
            self._count(card, 0, end, 1)
            self.refresh(card)
        self._touched_nodes.update(placement.nodes)
        self._book_nodes(claim, placement, 0, end, 1, self._nodes)

    def move_end(self, lease: Lease, old: Seconds, new: Seconds) -> None:
        """Let a lease that is held until `old` end at `new`."""
        first, last = min(old, new), max(old, new)
        for card, mib in self._taken(lease, lease.placement):
            self._touched.add(card)
            self._count(card, first, last, -1)
            card.move_end(lease.kind, old, new, mib)
            self._count(card, first, last, 1)
            for shelf in self._shelves_of(card):
                shelf.refresh(card, self.time)
                shelf.forget_chances()
        self._touched_nodes.update(lease.placement.nodes)
        self._book_nodes(lease, lease.placement, first, last, 1 if new > old else -1, self._nodes)

    def book(self, claim: Claim, placement: Placement, start: Seconds, end: Seconds, sign: int) -> None:
        """Take what a claim needs over [start, end); `sign` -1 gives it back."""
        for card, mib in self._taken(claim, placement):
            self._count(card, start, end, -1)
            card.book(claim.kind, start, end, mib, sign)
            self._count(card, start, end, 1)
            if start <= self.time < end:
                self.refresh(card)
        self._book_nodes(claim, placement, start, end, sign, self._nodes)

    def refresh(self, card: Card) -> None:
        """Take note of what is free on `card` at this moment."""
        for shelf in self._shelves_of(card):
            shelf.refresh(card, self.time)

    def _shelves_of(self, card: Card) -> list[Shelf]:
        return [shelf for shelf in self._shelves.values() if shelf.bay.has(card)]

    def _open(self, kind: Kind, bay: Bay) -> bool:
        """Say whether work of `kind` may start in a bay at this moment, if cards are free."""
        lender = self.lender(kind, bay)
        if lender is None:
            return kind in self._snapshot.partitions[bay.partition].kinds
        if not bay.memory or not lender.open(self.time):
            return False
        headroom = self.headrooms.get(bay.partition)
        if headroom is None or lender.in_window(self.time):
            return True
        return headroom.profile.at(self.time) >= headroom.slices(bay.memory, bay.memory)

    def _resolve(self, kind: Kind, request: Request) -> Shape:
        """Find the bays that suit a request; lent ones last."""
        suitable = [bay for bay in self.bays if self.suits(kind, request, bay)]
        suitable.sort(key=lambda bay: self.lender(kind, bay) is not None)
        fits = [self.fit(request, bay) for bay in suitable]
        roomy = tuple(fit for fit in fits if fit.bay.could_hold(fit.size))
        first = next(iter(roomy or fits), None) or self._away(kind, request)
        return Shape(roomy, first.amounts if first else self._amounts(request, 0, ""))

    def _away(self, kind: Kind, request: Request) -> Fit | None:
        suitable = (bay for bay in self.everything() if self.suits(kind, request, bay))
        return next((self.fit(request, bay) for bay in suitable), None)

    def _amounts(self, request: Request, gpu_milli: int, model: str) -> Mapping[str, int]:
        return {name: quota.amount(name, request, gpu_milli, model) for name in self._resources}

    def _lay_out(self, cards: Iterable[Card], nodes: Iterable[str]) -> list[Bay]:
        """Group cards that serve alike; a bay without cards holds a partition's CPU-only work."""
        usable = set(nodes)
        partitions = self._snapshot.partitions
        bare = sorted(usable - {gpu.node for gpu in self._snapshot.gpus})
        by_bay: dict[tuple[str, str, Mib], dict[str, Site]] = {}
        for name in partitions:
            by_bay[name, "", 0] = {node: Site(node, *self._nodes[node]) for node in bare}
        in_order = sorted(cards, key=lambda card: (card.gpu.node, card.gpu.index))
        alike = groupby(
            in_order,
            key=lambda card: (card.gpu.node, card.gpu.partition, card.gpu.model, card.gpu.memory_mib),
        )
        for (node, partition, model, memory), together in alike:
            if partition in partitions and node in usable:
                _site(by_bay[partition, "", 0], node, self._nodes)
                site = _site(by_bay.setdefault((partition, model, memory), {}), node, self._nodes)
                site.cards.extend(together)
        order = {name: number for number, name in enumerate(partitions)}
        keys = sorted(by_bay, key=lambda key: (order[key[0]], key[2], key[1]))
        return [Bay(*key, list(by_bay[key].values())) for key in keys]

    def _seen_by(self) -> dict[str, Iterable[Kind]]:
        """Return the kinds of work that may use the cards of each partition, lent ones included."""
        return {
            name: {*found.kinds, "job"} if name in self.lenders else found.kinds
            for name, found in self._snapshot.partitions.items()
        }

    def _card(self, gpu: Gpu) -> Card:
        reserved = self._reservations.get(gpu.uuid, ()) if self._reservations else ()
        return Card(gpu, self._kinds.get(gpu.partition, ()), reserved)

    def _headrooms(self) -> dict[str, Headroom]:
        """Count what stays free for sessions, in the partitions that keep some of it by day."""
        keeping = {name for name, one in self.lenders.items() if one.lend.by_day and one.lend.headroom}
        laid_out = [card for bay in self.bays for card in bay.cards]
        return {
            name: Headroom(self.lenders[name], [card for card in laid_out if card.gpu.partition == name])
            for name in keeping
        }

    def _count(self, card: Card, start: Seconds, end: Seconds, sign: int) -> None:
        """Count a card's free slices again: -1 before it changes over [start, end), 1 afterwards."""
        if self.headrooms and card.in_bay and card.gpu.partition in self.headrooms:
            self.headrooms[card.gpu.partition].count(card, start, end, sign)

    def _taken(self, claim: Claim, placement: Placement) -> Iterable[tuple[Card, Mib]]:
        """Yield what a claim takes of each card; a job has a lent one to itself."""
        lent = claim.kind == "job" and placement.partition in self.lenders
        whole = lent or (claim.whole if isinstance(claim, Lease) else claim.request.gpus > 0)
        for share in placement.gpus:
            card = self.cards.get(share.uuid)
            if card is not None:
                yield card, card.memory if whole else share.mib

    def _per_node(self, request: Request, partition: str, nodes: int) -> tuple[int, Mib]:
        known = self._snapshot.partitions.get(partition)
        overcommit = known.cpu_overcommit_milli if known else 1000
        return -(-request.cpus_milli * 1000 // (overcommit * nodes)), -(-request.memory_mib // nodes)

    def _seat(self, lease: Lease, end: Seconds) -> None:
        placement = lease.placement
        taken = [*self._taken(lease, placement)]
        for card, mib in taken:
            card.seat(lease.id, (lease.kind, end, mib))
        cards = tuple(card for card, _ in taken)
        amounts = self._per_node(lease.request, placement.partition, max(1, len(placement.nodes)))
        for node in placement.nodes:
            if node in self._on_node:
                self._on_node[node][lease.id] = end, *amounts
        self._seats[lease.id] = cards
        self._touched.update(cards)
        self._touched_nodes.update(placement.nodes)

    def _unseat(self, lease: Lease) -> None:
        cards = self._seats.pop(lease.id)
        for card in cards:
            card.unseat(lease.id)
        for node in lease.placement.nodes:
            if node in self._on_node:
                del self._on_node[node][lease.id]
        self._touched.update(cards)
        self._touched_nodes.update(lease.placement.nodes)

    def _reset_node(self, node: str) -> None:
        """Let a node's CPUs and memory be as the leases of the snapshot leave them."""
        if node in self._on_node:
            taken = self._on_node[node].values()
            cpus, memory = self._nodes[node]
            cpus.reset([(BEGIN, end, amount) for end, amount, _ in taken])
            memory.reset([(BEGIN, end, mib) for end, _, mib in taken])

    def _book_nodes(
        self,
        claim: Claim,
        placement: Placement,
        start: Seconds,
        end: Seconds,
        sign: int,
        among: Collection[str],
    ) -> None:
        cpus, memory = self._per_node(claim.request, placement.partition, max(1, len(placement.nodes)))
        for node in placement.nodes:
            if node in among and node in self._nodes:
                own_cpus, own_memory = self._nodes[node]
                own_cpus.book(start, end, sign * cpus)
                own_memory.book(start, end, sign * memory)


def _by_card(reservations: Iterable[Reservation], now: Seconds) -> dict[str, tuple[Reservation, ...]]:
    found: dict[str, tuple[Reservation, ...]] = {}
    for one in reservations:
        if one.end > now:
            for uuid in one.gpus:
                found[uuid] = (*found.get(uuid, ()), one)
    return found


def _site(sites: dict[str, Site], node: str, nodes: dict[str, tuple[Profile, Profile]]) -> Site:
    found = sites.get(node)
    if found is None:
        found = sites[node] = Site(node, *nodes[node])
    return found
