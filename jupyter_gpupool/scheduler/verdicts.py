"""Why each work waits: one reason, the first that holds, with its numbers.

Owns: the order of the reasons and their facts (`reasons` makes sentences of them).
Never: a decision; it reads the board after the pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from jupyter_gpupool.scheduler.bars import bar
from jupyter_gpupool.scheduler.board import Board, Option
from jupyter_gpupool.scheduler.feasibility import Feasibility
from jupyter_gpupool.scheduler.lines import CHARGE_UNIT, Cap, Lack, Line
from jupyter_gpupool.scheduler.model import Promise, Reason, Seconds, Stop, Work
from jupyter_gpupool.scheduler.placement import Shelf, Size
from jupyter_gpupool.scheduler.returns import Returns

Facts = Mapping[str, object]
Cause = tuple[Reason, Facts]
Options = tuple[Option, ...]
Lent = tuple[Seconds, str] | None  # when cards are lent next, and by which partition


class Judge:
    """Judges the works that wait after a pass."""

    def __init__(
        self,
        board: Board,
        feasible: Feasibility,
        promises: Sequence[Promise],
        stops: Sequence[Stop] = (),
    ) -> None:
        self._board = board
        self._feasible = feasible
        self._promises = promises
        self._now = board.time
        self._first: dict[Shelf, int] = {}
        self._lacks: dict[Lack, Facts] = {}
        self._next_ends: dict[tuple[Cap, Seconds], Seconds | None] = {}
        self._returns = Returns(board, stops)
        self._rooms: dict[tuple[object, ...], Facts] = {}

    def unranked(self, work: Work) -> Cause:
        """Judge work that takes no part: held, invalid, impossible, or after other work."""
        if work.held:
            return Reason.HELD, {"why": work.held}
        if work.invalid:
            return Reason.INVALID, {"why": work.invalid}
        refusal = self._feasible.problem(work)
        if refusal is None and work.after:
            return Reason.DEPENDENCY, {"kind": work.kind, "after": work.after}
        if refusal is None:
            raise ValueError(f"work {work.id} takes part in the ranking")
        return refusal.reason, {
            "message": refusal.message,
            "used": refusal.used,
            "limit": refusal.limit,
            "unit": refusal.unit,
            "hint": refusal.hint,
        }

    def ranked(self, work: Work, *, ahead: bool = True) -> Cause:
        """Judge work that takes part; call it for all of them in rank order.

        Parameters
        ----------
        ahead
            Whether the work is ahead of those that are judged after it.
        """
        board = self._board
        lacks = board.lacks(work)
        barred = bar(board, work, lacks)
        if barred is not None:
            return barred[0], self._barred(work, *barred)
        options = board.options(work)
        by_reason = {lack.line.cap.reason: lack for lack in reversed(lacks)}
        shared = by_reason.get(Reason.GROUP_QUOTA)
        facts = self._returns.facts(work, options, reached=shared is not None)
        if facts is not None:
            self._comes_first(work, options, ahead and shared is None)
            return Reason.RECLAIMING, {**facts, "room": self._room(work, options)}
        if Reason.RESOURCES in by_reason:
            return Reason.RESOURCES, self._lack(by_reason[Reason.RESOURCES])
        return self._behind(work, options, ahead)

    def _barred(self, work: Work, reason: Reason, lack: Lack | None) -> Facts:
        if lack is not None:
            return self._lack(lack)
        now = self._now
        if reason is Reason.OUTSIDE_WINDOW:
            return {"window": work.window, "opens": self._board.gate(work, now), "now": now}
        if reason is Reason.BACK_OFF:
            return {"until": work.not_before, "now": now}
        return self._away(work)

    def _behind(self, work: Work, options: Options, ahead: bool) -> Cause:
        """Nothing but room lacks: say who comes first, or what is busy."""
        shelves = [option.shelf for option in options]
        first = next((self._first[shelf] for shelf in shelves if shelf in self._first), None)
        self._comes_first(work, options, ahead)
        room = self._room(work, options)
        if first is not None:
            return Reason.PRIORITY, {"room": room, "first": first}
        blocker = self._blocker(work, options) if self._board.fits_for_a_moment(work) else None
        if blocker is not None:
            return Reason.PRIORITY, {"room": room, "first": blocker.work, "promised": blocker.start}
        return Reason.RESOURCES, {"room": room, "reserved": self._reserved_later(work, options)}

    def _reserved_later(self, work: Work, options: Options) -> Seconds | None:
        """Return from when on some of the cards are set apart for others, if `work` would not end by then."""
        serving, until = self._board.floor.serving(work.group, work.user), self._now + work.limit
        cards = (card for option in options for card in option.bay.cards)
        starts = (one.start for card in cards for one in card.reservations if one.id not in serving)
        return min((start for start in starts if self._now < start < until), default=None)

    def _comes_first(self, work: Work, options: Options, ahead: bool) -> None:
        """Note that those judged after `work` wait for what it waits for."""
        for option in options if ahead else ():
            self._first.setdefault(option.shelf, work.id)

    def _blocker(self, work: Work, options: Options) -> Promise | None:
        """Find the promise that a start now would delay: the soonest in the same partition."""
        partitions = {option.bay.partition for option in options}
        for promise in self._promises:
            if promise.work != work.id and promise.placement.partition in partitions:
                return promise
        return None

    def _lent_later(self, work: Work, options: Options) -> tuple[Options, Lent]:
        """Return where `work` may start now (else all), and the partition that next lends cards, and when."""
        now = self._now
        if not self._board.floor.lenders:
            return options, None
        closed = [option for option in options if not option.open_to(work, now)]
        terms = [
            (option, (term.first for term in option.terms(work, now) if term.first > now))
            for option in closed
        ]
        later = [(first, option.bay.partition) for option, firsts in terms for first in islice(firsts, 1)]
        return tuple(option for option in options if option not in closed) or options, min(
            later, default=None
        )

    def _room(self, work: Work, options: Options) -> Facts:
        """Tell what is free where `work` may start; works that may do so alike share the answer."""
        lasts = 0 if work.resumable else work.limit
        alike = *((option.shelf, option.size) for option in options), work.resumable, work.grace, lasts
        found = self._rooms.get(alike)
        if found is None:
            found = self._rooms[alike] = self._room_of(*self._lent_later(work, options))
        return found

    def _room_of(self, options: Options, lent: Lent) -> Facts:
        shelves = tuple(option.shelf for option in options)
        sizes = tuple(option.size for option in options)
        key = shelves, sizes, lent
        found = self._rooms.get(key)
        if found is None:
            size = sizes[0]
            idle = sum(shelf.idle() for shelf in shelves)
            ends = [card.first_end for shelf in shelves for card in shelf.bay.cards if card.first_end]
            found = self._rooms[key] = {
                "partition": " or ".join(dict.fromkeys(shelf.bay.partition for shelf in shelves)),
                "cards": size.cards,
                "mib": 0 if size.whole else size.mib,
                "cpus_milli": size.cpus,
                "memory_mib": size.memory,
                "total": sum(len(shelf.bay.cards) for shelf in shelves),
                "busy": sum(len(shelf.bay.cards) for shelf in shelves) - idle,
                "largest_free_mib": max(shelf.most_free for shelf in shelves),
                "lacks": self._lacks_of(shelves, sizes),
                "frees": min(ends, default=None),
                "lent": lent,
                "now": self._now,
            }
        return found

    def _lacks_of(self, shelves: tuple[Shelf, ...], sizes: tuple[Size, ...]) -> str:
        """Say what there is too little of now: ``cards``, ``node`` (CPUs, memory) or ``nothing``."""
        if not any(map(Shelf.may_hold, shelves, sizes)):
            return "cards"
        now = self._now
        fits = any(shelf.pick(size, now, now + 1) for shelf, size in zip(shelves, sizes, strict=True))
        return "nothing" if fits else "node"

    def _away(self, work: Work) -> Facts:
        """Tell which of the cards that would serve are not available, and why."""
        board = self._board
        nodes = {node.name: node for node in board.snapshot.nodes}
        suitable = [
            bay for bay in board.floor.everything() if board.floor.suits(work.kind, work.request, bay)
        ]
        cards = [card for bay in suitable for card in bay.cards]
        serving = board.floor.serving(work.group, work.user)
        kept = {card: found for card in cards if (found := card.kept_from(serving, self._now))}
        gone = [
            card.gpu
            for card in cards
            if card in kept or not (card.gpu.available and nodes[card.gpu.node].available)
        ]
        why = {gpu.unavailable_because or nodes[gpu.node].unavailable_because for gpu in gone} | {
            nodes[site.node].unavailable_because for bay in suitable for site in bay.sites
        }
        why |= {one.because or "reserved for others" for found in kept.values() for one in found}
        return {
            "total": len(cards),
            "away": len(gone),
            "because": "; ".join(sorted(text for text in why if text)),
        }

    def _lack(self, lack: Lack) -> Facts:
        found = self._lacks.get(lack)
        if found is None:
            line, need = lack
            cap, limit = line.cap, line.most
            used, unit = limit - line.free(self._now), CHARGE_UNIT if cap.reason is Reason.BUDGET else 1
            found = self._lacks[lack] = {
                "what": cap.resource if cap.reason is Reason.GROUP_QUOTA else cap.what,
                "rule": cap.what,
                "owner": cap.owner,
                "used": used // unit,
                "limit": limit // unit,
                "need": need // unit,
                "frees": self._next_end(line),
                "now": self._now,
            }
        return found

    def _next_end(self, line: Line) -> Seconds | None:
        key = line.cap, line.early
        if key not in self._next_ends:
            self._next_ends[key] = self._board.limits.next_end(line)
        return self._next_ends[key]
