"""Who must leave so that a taker fits.

Owns: the trial on the board: victims go in order until some node could hold the taker, then all but the
fewest of those stay. Never: who may be asked at all (`stopping`, `clearing`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from jupyter_gpupool.scheduler.board import Board, Option
from jupyter_gpupool.scheduler.card import Card
from jupyter_gpupool.scheduler.model import Kind, Lease, Mib, Placement, Reason, Seconds, Stop, Work
from jupyter_gpupool.scheduler.placement import Bay
from jupyter_gpupool.scheduler.quota import CPUS, GPU, MEMORY
from jupyter_gpupool.scheduler.stopping import Amounts, Excess, Victim, fewest, leaves_at
from jupyter_gpupool.scheduler.timeline import BEGIN, FOREVER


@dataclass(frozen=True, slots=True)
class Room:
    """Where and when a taker can start, and who is asked to stop for it."""

    start: Seconds
    placement: Placement
    stops: tuple[Stop, ...] = ()


class Most(NamedTuple):
    """The most that could be free in a node: until when one card is, two are, and so on.

    `mib` is the largest piece of a card that others are on.
    `idle` are the cards of each node that could be free at all.
    """

    until: tuple[Seconds, ...]
    mib: Mib
    idle: Mapping[str, int]

    def longest(self, cards: int) -> Seconds:
        """Return until when so many cards of one node could be had."""
        return self.until[cards - 1] if cards <= len(self.until) else BEGIN


NOTHING = Most((), -1, {})


class Holders:
    """Who is on which card, and what is free without some of them at the moment `at`."""

    def __init__(self, board: Board, at: Seconds) -> None:
        self._board = board
        self._at = at
        self._asked: dict[int, Lease] = {}

    def leave(self, lease: Lease) -> None:
        """Take note that a job was asked: it is gone by then."""
        self._asked[lease.id] = lease

    def free(self, card: Card, kind: Kind, gone: Collection[int]) -> Mib:
        """Return what is free on a card for one kind of work, without those that are `gone`."""
        free = card.memory
        for lease, holder, mib, end in self._on_card.get(card.gpu.uuid, ()):
            if end > self._at and lease not in gone and lease not in self._asked:
                free -= mib if holder == kind else card.memory
        return free

    @cached_property
    def largest(self) -> int:
        """Return how many cards for jobs the largest node has."""
        return max((bay.largest for bay in self._bays), default=0)

    def most(self, leaving: Iterable[Lease], kept: Mapping[str, Seconds], *, resumable: bool) -> Most:
        """Return the most that could be free in a node for jobs that are, or are not, `resumable`.

        The jobs `leaving`, and those that were asked, are gone then; cards are `kept` for others from some
        time on.
        """
        freed: dict[str, Mib] = {}
        for lease in (*self._asked.values(), *leaving):
            if self._board.limits.end_of(lease) > self._at:
                for card, mib in self._taken(lease):
                    uuid = card.gpu.uuid
                    if uuid in self._left:
                        freed[uuid] = freed.get(uuid, self._left[uuid]) + mib
        cards = self._board.floor.cards
        freed_in = {cards[uuid].gpu.partition for uuid in freed}
        idle: defaultdict[str, list[Seconds]] = defaultdict(list)
        for uuid in self._idle.union(uuid for uuid, mib in freed.items() if mib >= cards[uuid].memory):
            gpu = cards[uuid].gpu
            until = kept.get(uuid, FOREVER)
            if gpu.partition in self._lent_until:
                until = self._lent_until[gpu.partition][resumable]
                until = FOREVER if resumable and gpu.partition in freed_in else until
            if until > self._board.time:
                idle[gpu.node].append(until)
        lasting = [sorted(found, reverse=True) for found in idle.values()]
        longest = tuple(max(found) for found in zip_longest(*lasting, fillvalue=BEGIN))
        pieces = (mib for uuid, mib in freed.items() if mib < cards[uuid].memory)
        mib = max(self._largest_piece, max(pieces, default=0))
        return Most(longest, mib, {node: len(found) for node, found in idle.items()})

    @cached_property
    def _lent_until(self) -> dict[str, tuple[Seconds, Seconds]]:
        """Say of each partition that lends until when an idle card of it may be had, if one is lent by `at`.

        First for jobs that cannot be stopped, who leave by the window's end, then for those that can.
        """
        now, floor = self._board.time, self._board.floor
        found = {}
        for name, lender in floor.lenders.items():
            edge, headroom = lender.next_edge(now), floor.headrooms.get(name)
            in_window = lender.in_window(now) or (edge is not None and edge <= self._at)
            beyond = headroom is None or any(
                free > 0 for _, _, free in headroom.profile.levels(now, self._at + 1)
            )
            by_day = lender.open(now) and beyond
            back = lender.hand_back(self._at) if in_window else BEGIN
            found[name] = back, FOREVER if in_window or by_day else BEGIN
        return found

    @cached_property
    def _idle(self) -> frozenset[str]:
        """The cards that are wholly free, if all leave as they were expected to."""
        cards = self._board.floor.cards
        return frozenset(uuid for uuid, mib in self._left.items() if mib >= cards[uuid].memory)

    @cached_property
    def _largest_piece(self) -> Mib:
        """Return the largest piece that is free on a card that is not wholly free."""
        return max((mib for uuid, mib in self._left.items() if uuid not in self._idle), default=0)

    @cached_property
    def _bays(self) -> list[Bay]:
        return [shelf.bay for shelf in self._board.floor.shelves("job")]

    @cached_property
    def _left(self) -> dict[str, Mib]:
        """Return what is free for jobs on each card, if all leave as they were expected to."""
        free = {card.gpu.uuid: card.memory for bay in self._bays for card in bay.cards}
        for lease in self._board.snapshot.leases:
            if self._board.limits.end_of(lease) > self._at:
                for card, mib in self._taken(lease):
                    if card.gpu.uuid in free:
                        free[card.gpu.uuid] -= mib if lease.kind == "job" else card.memory
        return free

    @cached_property
    def _on_card(self) -> dict[str, list[tuple[int, Kind, Mib, Seconds]]]:
        found: dict[str, list[tuple[int, Kind, Mib, Seconds]]] = {}
        for lease in self._board.snapshot.leases:
            end = self._board.expected_end(lease)
            for card, mib in self._taken(lease):
                found.setdefault(card.gpu.uuid, []).append((lease.id, lease.kind, mib, end))
        return found

    def _taken(self, lease: Lease) -> Iterator[tuple[Card, Mib]]:
        """Yield what a lease takes of each card."""
        board = self._board
        whole = lease.whole or board.limits.ends.lent(lease.kind, lease.placement.partition)
        for share in lease.placement.gpus:
            card = board.floor.cards.get(share.uuid)
            if card is not None:
                yield card, card.memory if whole else share.mib


class Search:
    """The search for one taker that is to start by `until`.

    Its group is to be inside quota when it takes what is `wanted` in an option, and those whom it preempts
    have left; None if that is no condition.
    """

    def __init__(
        self,
        board: Board,
        holders: Holders,
        work: Work,
        wanted: Sequence[tuple[Option, Amounts]] | None,
        until: Seconds,
    ) -> None:
        self._board = board
        self._holders = holders
        self._work = work
        self._wanted = wanted
        self._until = until
        self._gone: dict[int, Victim] = {}

    def run(self, victims: Sequence[Victim], excess: Excess, lacks: Collection[str]) -> Room | None:
        """Return the first room that victims, taken in order, make on a node or, if need be, on several."""
        if self._is_spread():
            left = excess.copy()
            return self._try([victim for victim in victims if left.take(victim, lacks)], None)
        gone: dict[str, list[Victim]] = {}
        lefts: dict[str, Excess] = {}
        for victim in victims:
            for node in victim.lease.placement.nodes:
                if node not in lefts:
                    lefts[node] = excess.copy()
                if lefts[node].take(victim, lacks):
                    gone.setdefault(node, []).append(victim)
                    room = self._try(gone[node], (node,)) if self._could_hold(node, gone[node]) else None
                    if room is not None:
                        return room
        return None

    def _is_spread(self) -> bool:
        """Say whether those who must leave may be on several nodes: for a larger job, or for quota too."""
        board, work = self._board, self._work
        largest = max((option.bay.largest for option in board.options(work)), default=0)
        if work.request.gpus > largest or board.short(work) is not None:
            return True
        wanted = self._wanted
        return wanted is not None and not any(
            board.limits.inside(work.group, amounts) for _, amounts in wanted
        )

    def _could_hold(self, node: str, gone: Sequence[Victim]) -> bool:
        """Say whether the cards of a node are enough for the taker, with these gone."""
        ids = {victim.lease.id for victim in gone}
        for option in self._board.options(self._work):
            site = option.bay.site_of.get(node)
            if site is not None:
                free = (self._holders.free(card, self._work.kind, ids) for card in site.cards)
                if sum(mib >= option.size.mib for mib in free) >= option.size.cards:
                    return True
        return False

    def _try(self, victims: Sequence[Victim], nodes: Collection[str] | None) -> Room | None:
        """Return the room that the fewest of `victims` make; the board is left as it was."""
        needed = fewest(victims, lambda chosen: self._fits_without(chosen, nodes) is not None)
        found = None if needed is None else self._fits_without(needed, nodes)
        self._let_go(())
        if needed is None or found is None:
            return None
        stops = (Stop(one.lease.work, one.lease.id, one.cause, self._work.id) for one in needed)
        return Room(*found, tuple(stops))

    def _fits_without(
        self, victims: Sequence[Victim], nodes: Collection[str] | None
    ) -> tuple[Seconds, Placement] | None:
        options = self._owed(victims)
        if not options:
            return None
        self._let_go(victims)
        return self._board.earliest(self._work, self._until + 1, nodes, options)

    def _owed(self, victims: Sequence[Victim]) -> Sequence[Option]:
        """Return where its group is inside quota with the taker, once those have left whom it preempts."""
        if self._wanted is None:
            return self._board.options(self._work)
        own = [victim.amounts for victim in victims if victim.cause == "preempt"]
        return [
            option
            for option, wanted in self._wanted
            if self._board.limits.inside(
                self._work.group,
                {name: amount - sum(one[name] for one in own) for name, amount in wanted.items()},
            )
        ]

    def _let_go(self, victims: Sequence[Victim]) -> None:
        """Let these, and nobody else, leave at the end of their grace."""
        ids = {victim.lease.id for victim in victims}
        for victim in self._gone.values():
            if victim.lease.id not in ids:
                self._board.lengthen(victim.lease)
        for victim in victims:
            if victim.lease.id not in self._gone:
                self._board.shorten(victim.lease, leaves_at(victim.lease, self._board.time))
        self._gone = {victim.lease.id: victim for victim in victims}


def lacking(board: Board, work: Work) -> frozenset[str]:
    """Return the resources of which there is too little for `work` at this moment."""
    options, now = board.options(work), board.time
    short = {
        line.cap.resource
        for option in options
        for line, need in option.needs
        if line.cap.reason is Reason.GROUP_QUOTA and line.free(now) < need
    }
    needed = {name for name, amount in board.measure(work).items() if amount}
    if not any(option.shelf.may_hold(option.size) for option in options):
        short |= {name for name in needed if name.startswith(GPU)}
    elif not short:
        short = {name for option in options for name in _short_on_nodes(option, now)}
    return frozenset(short & needed or needed)


def _short_on_nodes(option: Option, now: Seconds) -> Iterator[str]:
    """Yield what of a node's CPUs and memory is too little on all nodes of a bay."""
    if all(site.cpus.at(now) < option.size.cpus for site in option.bay.sites):
        yield CPUS
    if all(site.memory.at(now) < option.size.memory for site in option.bay.sites):
        yield MEMORY
