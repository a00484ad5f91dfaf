"""How work that does not fit gets room.

Owns: who could make room in one pass, for whom, and what cheap look says that nobody could. Nobody is asked
while room comes by itself within their grace.
Never: the rules of who may be asked (`stopping`), nor the trial on the board (`search`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Lease, Mib, Promise, Seconds, StopCause, Work
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.quota import GPU
from jupyter_gpupool.scheduler.search import Holders, Room, Search, lacking
from jupyter_gpupool.scheduler.stopping import (
    PLAIN,
    Amounts,
    Excess,
    Victim,
    by_harm,
    hand_backs,
    leaves_at,
    must_be_above,
)
from jupyter_gpupool.scheduler.timeline import FOREVER


class Clearing:
    """Who could make room on one board; `stops` are all that were asked in this pass."""

    def __init__(self, board: Board, promises: Promises) -> None:
        snapshot = board.snapshot
        self.stops = hand_backs(snapshot, board.limits.ends, board.time)
        self._board = board
        self._promises = promises
        self._now = board.time
        self._grown_up = board.time - snapshot.settings.min_run_time
        self._excess = Excess(board.limits.excess)
        handed_back = {stop.lease for stop in self.stops}
        for lease in snapshot.leases:
            if lease.asked is not None or lease.id in handed_back:
                self._leave(lease)
        staying = (lease for lease in snapshot.leases if lease.id not in handed_back)
        self._stoppable = sorted(
            filter(self._could_leave, staying), key=lambda lease: by_harm(lease, snapshot.priorities)
        )
        resumable = [lease for lease in snapshot.leases if lease.kind == "job" and lease.resumable]
        self._soon = max((leaves_at(lease, board.time) for lease in resumable), default=None)
        self._holders = Holders(board)
        self._most: tuple[int, int, Mib] | None = None
        self._owed: dict[tuple[str, bool], bool] = {}
        self._failed: dict[object, Seconds] = {}
        self._above: dict[str, bool] = {}
        self._known_over: list[Lease] | None = None
        self._measured: dict[int, Amounts] = {}

    def started(self, work: Work) -> None:
        """Take note of a start: its group, and those above it, hold more now."""
        self._forget(work.group)

    @property
    def anybody(self) -> bool:
        """Say whether anybody could be asked at all."""
        return bool(self._stoppable)

    def may_claim(self, work: Work) -> bool:
        """Say, at little cost, whether a session could get room in the grace of some job."""
        return self._soon is not None and self._board.short(work) is None

    def may_take(self, work: Work, own: Promise | None) -> bool:
        """Say, at little cost, whether anybody could be asked to stop for a job, which may have a promise."""
        if not self._stoppable or self._soon is None or (own is not None and own.start <= self._soon):
            return False
        if work.limit >= self._failed.get(_about(work), FOREVER) or not self._could_hold(work):
            return False
        return self._preempts(work) or (self._is_owed(work) and bool(self._over) and self._fits_owed(work))

    def room(self, work: Work) -> Room | None:
        """Find room that comes within the longest grace of any job, by itself or because jobs are asked."""
        board, until = self._board, self._soon
        if until is None:
            return None
        found = board.earliest(work, until + 1)
        if found is not None:
            return Room(*found)
        owed = self._fits_owed(work)
        lacks = lacking(board, work) if owed or self._preempts(work) else frozenset()
        victims = [*self._claimed(work), *self._taken_back(work, lacks)]
        condition = None if owed or work.kind == "session" else self._wanted(work)
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
                self._leave(lease)
                self._forget(lease.group)
        self._stoppable = [lease for lease in self._stoppable if lease.id not in stopped]
        self.stops.extend(room.stops)

    def _could_leave(self, lease: Lease) -> bool:
        """Say whether a lease might be asked at all, and would end sooner by it."""
        return (
            lease.kind == "job"
            and lease.resumable
            and lease.asked is None
            and (lease.start <= self._grown_up or self._is_lent(lease))
            and self._board.expected_end(lease) > leaves_at(lease, self._now)
        )

    def _claimed(self, work: Work) -> list[Victim]:
        """Return the jobs on lent cards, for a session: those of its own group first."""
        if work.kind != "session":
            return []
        lent = [self._victim(lease, "session") for lease in self._stoppable if self._is_lent(lease)]
        return sorted(lent, key=lambda victim: victim.lease.group != work.group)

    def _taken_back(self, work: Work, lacks: Collection[str]) -> list[Victim]:
        """Return the jobs that stand above quota where something lacks; for a class that preempts, also the
        lower ones of its group."""
        found = []
        upward = self._board.limits.upward(work.group)
        for lease in self._stoppable if self._preempts(work) and lacks else self._over if lacks else ():
            if lease.start > self._grown_up or (work.kind == "session" and self._is_lent(lease)):
                continue
            if self._preempts(work) and lease.group == work.group and self._value(lease) < self._value(work):
                found.append(self._victim(lease, "preempt"))
                continue
            victim = self._victim(lease, "reclaim", upward)
            if self._excess.allows(victim, lacks):
                found.append(victim)
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
            self._owed.pop((name, True), None)
            self._owed.pop((name, False), None)
        self._known_over = None

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
        return self._board.limits.inside(work.group, self._wanted(work))

    def _wanted(self, work: Work) -> Amounts:
        """Return what its group takes more with `work`, and with what it is owed and promised soon."""
        return self._with_promised(work, self._board.measure(work))

    def _with_promised(self, work: Work, amounts: Amounts) -> Amounts:
        board = self._board
        until = self._now if self._soon is None else self._soon
        beside = [other for other in self._promises.due_by(work.group, until) if other.id != work.id]
        for more in (board.measure(other) for other in beside if board.inside(other)):
            amounts = {name: amount + more[name] for name, amount in amounts.items()}
        return amounts

    def _preempts(self, work: Work) -> bool:
        return self._board.snapshot.priorities.get(work.priority, PLAIN).preempts

    def _value(self, claim: Work | Lease) -> int:
        return self._board.snapshot.priorities.get(claim.priority, PLAIN).value

    def _is_owed(self, work: Work) -> bool:
        """Say whether the group of `work` may take more of its cards, however little."""
        key = work.group, work.request.gpus > 0
        found = self._owed.get(key)
        if found is None:
            least = {**dict.fromkeys(self._board.measure(work), 0), GPU: int(key[1])}
            wanted = self._with_promised(work, least)
            found = self._owed[key] = self._board.limits.inside(work.group, wanted)
        return found

    def _could_hold(self, work: Work) -> bool:
        """Say whether some node had enough of its cards free if all left who might be asked."""
        if self._most is None:
            self._most = self._read_most()
        largest, cards, mib = self._most
        return min(work.request.gpus, largest) <= cards and work.request.gpu_mib <= mib

    def _read_most(self) -> tuple[int, int, Mib]:
        """Return how many cards the largest node has, how many could be free in one, how much of a card."""
        gone = {lease.id for lease in self._stoppable}
        until = self._now if self._soon is None else self._soon
        bays = [shelf.bay for shelf in self._board.floor.shelves("job")]
        cards, mib = 0, 0
        for bay in bays:
            for site in bay.sites:
                free = [self._holders.free(card, "job", gone, until) for card in site.cards]
                cards = max(cards, free.count(bay.memory))
                mib = max(mib, *free, 0)
        return max((bay.largest for bay in bays), default=0), cards, mib

    def _is_lent(self, lease: Lease) -> bool:
        return self._board.limits.ends.lent(lease.kind, lease.placement.partition)

    def _leave(self, lease: Lease) -> None:
        self._excess.leave(self._board.limits.upward(lease.group), self._board.measure(lease))


def _about(work: Work) -> object:
    """Tell apart what matters for room but the time: works that are alike find it alike, if not longer."""
    return work.kind, work.group, work.user, work.priority, work.request, work.window, work.resumable
