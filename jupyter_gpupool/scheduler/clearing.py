"""How work that does not fit gets room.

Owns: who could make room in one pass, for whom, and what cheap look says that nobody could. Nobody is asked
while room comes by itself within their grace.
Never: the rules of who may be asked (`stopping`), nor the trial on the board (`search`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from jupyter_gpupool.scheduler.board import Board, Option
from jupyter_gpupool.scheduler.model import Lease, Promise, Seconds, StopCause, Work
from jupyter_gpupool.scheduler.precedence import Precedence
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.quota import GPU
from jupyter_gpupool.scheduler.search import NOTHING, Holders, Most, Room, Search, lacking
from jupyter_gpupool.scheduler.stopping import (
    PLAIN,
    Amounts,
    Excess,
    Victim,
    hand_backs,
    leaves_at,
    must_be_above,
)
from jupyter_gpupool.scheduler.timeline import FOREVER

Owing = tuple[tuple[str, ...], frozenset[str]]  # the groups above a taker's, and what lacks


class Clearing:
    """Who could make room on one board; `stops` are all that were asked in this pass."""

    def __init__(self, board: Board, promises: Promises, precedence: Precedence) -> None:
        snapshot = board.snapshot
        self.stops = hand_backs(snapshot, board.limits.ends, board.time)
        self._board = board
        self._promises = promises
        self._precedence = precedence
        self._now = board.time
        self._grown_up = board.time - snapshot.settings.min_run_time
        self._excess = Excess(self._excess_of)
        self._handed_back = {stop.lease for stop in self.stops}
        for lease in board.roster.asked.values():
            self._leave(lease)
        for lease in snapshot.leases if self._handed_back else ():
            if lease.id in self._handed_back:
                self._leave(lease)
        self._everything = frozenset(board.limits.resources)
        self._known_owing: dict[Owing, list[Victim]] = {}
        self._parents: set[str] | None = None
        self._most: dict[tuple[Owing | None, int | None, bool], Most] = {}
        self._fitting: dict[tuple[str, int, int], bool] = {}
        self._known_excess: dict[str, Amounts] = {}
        self._known_kept: dict[int | None, dict[str, Seconds]] = {}
        self._seen = promises.changes
        self._seen_now = promises.changes_now
        self._owed: dict[str, dict[int, bool]] = {}
        self._failed: dict[object, Seconds] = {}
        self._above: dict[str, bool] = {}
        self._known_over: list[Lease] | None = None
        self._measured: dict[int, Amounts] = {}

    @cached_property
    def _stoppable(self) -> list[Lease]:
        """List who could be asked, those first whom it harms least; read when somebody lacks room."""
        staying = (lease for lease in self._board.roster.stoppable() if lease.id not in self._handed_back)
        return [*filter(self._could_leave, staying)]

    @cached_property
    def _soon(self) -> Seconds | None:
        """Return when the last of all that can be stopped would be gone."""
        graces = [grace for grace, jobs in self._board.roster.graces.items() if jobs]
        return self._now + max(1, *graces) if graces else None

    @cached_property
    def _holders(self) -> Holders:
        return Holders(self._board, self._now if self._soon is None else self._soon)

    def started(self, work: Work) -> None:
        """Take note of a start: its group, and those above it, hold more now."""
        self._forget(work.group)

    @property
    def anybody(self) -> bool:
        """Say, at little cost, whether anybody could be asked at all."""
        return self._soon is not None

    def may_claim(self, work: Work) -> bool:
        """Say, at little cost, whether a session could get room in the grace of some job."""
        return self._soon is not None and self._board.short(work) is None

    def may_take(self, work: Work, own: Promise | None) -> bool:
        """Say, at little cost, whether anybody could be asked to stop for a job, which may have a promise."""
        if self._soon is None or (own is not None and own.start <= self._soon):
            return False
        if not self.preempts(work.priority) and not (self._is_owed(work) and self._fits_owed(work)):
            return False
        if not self._stoppable:
            return False
        return work.limit < self._failed.get(_about(work), FOREVER) and self._could_hold(work, own)

    def room(self, work: Work) -> Room | None:
        """Find room that comes within the longest grace of any job, by itself or because jobs are asked."""
        board, until = self._board, self._soon
        if until is None:
            return None
        found = board.earliest(work, until + 1)
        if found is not None:
            return Room(*found)
        wanted = self._wanted(work)
        inside = (self._board.limits.inside(work.group, amounts) for _, amounts in wanted)
        may_take = self.preempts(work.priority) or any(inside)
        lacks: frozenset[str] = lacking(board, work) if may_take else frozenset()
        victims = [*self._claimed(work), *self._taken_back(work, lacks)]
        condition = None if work.kind == "session" else wanted
        room = Search(board, self._holders, work, condition, until).run(victims, self._excess, lacks)
        if room is None:
            self._failed[_about(work)] = work.limit
        return room

    def ask(self, work: Work, room: Room) -> None:
        """Count those as leaving whom the room of a taker needs."""
        self._forget(work.group)
        stopped = {stop.lease for stop in room.stops}
        for lease in self._stoppable if stopped else ():
            if lease.id in stopped:
                self._board.shorten(lease, leaves_at(lease, self._now))
                self._holders.leave(lease)
                self._leave(lease)
                self._forget(lease.group)
        self._stoppable = [lease for lease in self._stoppable if lease.id not in stopped]
        self.stops.extend(room.stops)

    def _could_leave(self, lease: Lease) -> bool:
        """Say whether a job that can be stopped might be asked at all, and would end sooner by it."""
        grown = lease.start <= self._grown_up or self._is_lent(lease)
        return grown and self._board.expected_end(lease) > leaves_at(lease, self._now)

    def _claimed(self, work: Work) -> list[Victim]:
        """Return the jobs on lent cards, for a session: those of its own group first."""
        if work.kind != "session":
            return []
        lent = [self._victim(lease, "session") for lease in self._stoppable if self._is_lent(lease)]
        return sorted(lent, key=lambda victim: victim.lease.group != work.group)

    def _taken_back(self, work: Work, lacks: frozenset[str]) -> list[Victim]:
        """Return the jobs that stand above quota where something lacks; for a class that preempts, also the
        lower ones of its group."""
        if not lacks:
            return []
        if self.preempts(work.priority):
            return self._preempted(work, lacks)
        found = self._owing(self._in_common(work.group), lacks)
        return [one for one in found if work.kind == "job" or not self._is_lent(one.lease)]

    def _preempted(self, work: Work, lacks: Collection[str]) -> list[Victim]:
        found = []
        upward = self._board.limits.upward(work.group)
        for lease in self._stoppable:
            if lease.start > self._grown_up:
                continue
            if lease.group == work.group and self._value(lease) < self._value(work):
                found.append(self._victim(lease, "preempt"))
                continue
            victim = self._victim(lease, "reclaim", upward)
            if self._excess.allows(victim, lacks):
                found.append(victim)
        return found

    def _in_common(self, group: str) -> tuple[str, ...]:
        """Return the groups that a taker may have in common with a victim of another group."""
        limits = self._board.limits
        if self._parents is None:
            self._parents = {one.parent for one in limits.groups.values()}
        chain = limits.upward(group)
        return chain if group in self._parents else chain[1:]

    def _owing(self, above: tuple[str, ...], lacks: frozenset[str]) -> list[Victim]:
        """Return the jobs from which a group below all of `above` gets back something that lacks."""
        found = self._known_owing.get((above, lacks))
        if found is None:
            victims = (
                self._victim(one, "reclaim", above) for one in self._over if one.start <= self._grown_up
            )
            found = [victim for victim in victims if self._excess.allows(victim, lacks)]
            self._known_owing[above, lacks] = found
        return found

    @property
    def _over(self) -> list[Lease]:
        """The jobs that could be asked whose own group stands above what it owns."""
        if self._known_over is None:
            self._known_over = [lease for lease in self._stoppable if self._is_over(lease.group)]
        return self._known_over

    def _is_over(self, group: str) -> bool:
        found = self._above.get(group)
        if found is None:
            found = self._above[group] = self._excess.any(group)
        return found

    def _forget(self, group: str) -> None:
        """Forget what was known of a group that holds more or less now, and of those above it."""
        for name in self._board.limits.upward(group):
            self._above.pop(name, None)
            self._owed.pop(name, None)
        self._known_over = None
        self._known_owing.clear()
        self._most.clear()
        self._fitting.clear()
        self._known_excess.clear()
        self._known_kept.clear()

    def _forget_if_promised(self) -> None:
        """Forget what depends on promises, once they are others."""
        if self._promises.changes != self._seen:
            self._seen = self._promises.changes
            self._most.clear()
            self._fitting.clear()
            self._known_kept.clear()

    def _excess_of(self, group: str) -> Amounts:
        if self._promises.changes_now != self._seen_now:
            self._seen_now = self._promises.changes_now
            self._known_excess.clear()
        found = self._known_excess.get(group)
        if found is None:
            found = self._known_excess[group] = self._board.limits.excess(group)
        return found

    def _victim(self, lease: Lease, cause: StopCause, taker: Sequence[str] | None = None) -> Victim:
        chain = self._board.limits.upward(lease.group)
        above = () if taker is None else must_be_above(chain, taker)
        return Victim(lease, cause, self._amounts(lease), chain, above)

    def _amounts(self, lease: Lease) -> Amounts:
        found = self._measured.get(lease.id)
        if found is None:
            found = self._measured[lease.id] = self._board.measure(lease)
        return found

    def _fits_owed(self, work: Work) -> bool:
        """Say whether the group of `work` is inside quota with it, on some cards at least."""
        return any(self._fits_with(work, option.amounts) for option in self._board.options(work))

    def _fits_with(self, work: Work, amounts: Amounts) -> bool:
        key = work.group, id(amounts), work.id if self._promises.get(work.id) else 0
        self._forget_if_promised()
        found = self._fitting.get(key)
        if found is None:
            wanted = self._with_promised(work, amounts)
            found = self._fitting[key] = self._board.limits.inside(work.group, wanted)
        return found

    def _wanted(self, work: Work) -> list[tuple[Option, Amounts]]:
        """Return what its group takes more with `work`, in each option, and with what it is promised soon."""
        return [(one, self._with_promised(work, one.amounts)) for one in self._board.options(work)]

    def _with_promised(self, work: Work, amounts: Amounts) -> Amounts:
        board = self._board
        until = self._now if self._soon is None else self._soon
        beside = [other for other in self._promises.due_by(work.group, until) if other.id != work.id]
        for more in (board.measure(other) for other in beside if board.inside(other)):
            amounts = {name: amount + more[name] for name, amount in amounts.items()}
        return amounts

    def preempts(self, priority: str) -> bool:
        """Say whether a class may stop lower ones."""
        return self._board.snapshot.priorities.get(priority, PLAIN).preempts

    def _value(self, claim: Work | Lease) -> int:
        return self._board.snapshot.priorities.get(claim.priority, PLAIN).value

    def _is_owed(self, work: Work) -> bool:
        """Say whether the group of `work` may take so many cards more, whatever else comes with them."""
        cards = work.request.gpus
        known = self._owed.setdefault(work.group, {})
        found = known.get(cards)
        if found is None:
            least = {**dict.fromkeys(self._board.measure(work), 0), GPU: 1000 * cards}
            wanted = self._with_promised(work, least)
            found = known[cards] = self._board.limits.inside(work.group, wanted)
        return found

    def _could_hold(self, work: Work, own: Promise | None) -> bool:
        """Say whether some node had enough of its cards free if all left who might be asked for `work`."""
        if self.preempts(work.priority):
            return self._could_hold_on(work, own, None)
        above = self._in_common(work.group)
        return self._could_hold_on(work, own, (above, self._everything)) and self._could_hold_on(
            work, own, (above, lacking(self._board, work))
        )

    def _could_hold_on(self, work: Work, own: Promise | None, owing: Owing | None) -> bool:
        most = self._most_without(owing, self._precedence.price(work), resumable=work.resumable)
        cards = min(work.request.gpus, self._holders.largest)
        if most is NOTHING:
            return False
        if not cards:
            return work.request.gpu_mib <= most.mib or bool(most.until)
        if self._now + work.limit <= most.longest(cards):
            return True
        return own is not None and any(most.idle.get(node, 0) >= cards for node in own.placement.nodes)

    def _most_without(self, owing: Owing | None, price: int | None, *, resumable: bool) -> Most:
        """Return the most that could be free in a node without those who owe something, or without anybody.

        Promises stay that give way to nobody of a class of that `price`.
        """
        self._forget_if_promised()
        found = self._most.get((owing, price, resumable))
        if found is None:
            leaving = self._stoppable if owing is None else [victim.lease for victim in self._owing(*owing)]
            kept = self._kept(price)
            found = self._holders.most(leaving, kept, resumable=resumable) if leaving else NOTHING
            self._most[owing, price, resumable] = found
        return found

    def _kept(self, price: int | None) -> dict[str, Seconds]:
        """Return from when on cards are kept for those that are promised them, and stay promised."""
        kept = self._known_kept.get(price)
        if kept is None:
            kept = self._known_kept[price] = {}
            until = self._now if self._soon is None else self._soon
            for promise, end in self._promises.lasting(
                lambda one: not self._precedence.may_give_way(one, price)
            ):
                for share in promise.placement.gpus if end > until else ():
                    kept[share.uuid] = min(promise.start, kept.get(share.uuid, promise.start))
        return kept

    def _is_lent(self, lease: Lease) -> bool:
        return self._board.limits.ends.lent(lease.kind, lease.placement.partition)

    def _leave(self, lease: Lease) -> None:
        self._excess.leave(self._board.limits.upward(lease.group), self._board.measure(lease))


def _about(work: Work) -> object:
    """Tell apart what matters for room but the time: works that are alike find it alike, if not longer."""
    who = work.kind, work.group, work.user, work.priority, work.array, work.array_limit
    return who, work.request, work.window, work.resumable
