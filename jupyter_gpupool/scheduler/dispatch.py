"""What starts now, what is promised and who is asked to stop: one pass over the board.

Owns: the order of a pass: promises are carried, sessions placed, moved promises repaired, jobs started,
promised or passed over in rank order; where promises give way and room is asked for; and which works a fast
pass may leave out because nothing can be done for them.
Never: estimates (`forecast`), reasons (`verdicts`), the rules of giving way (`precedence`, `stopping`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from jupyter_gpupool.scheduler.bars import may_be_promised
from jupyter_gpupool.scheduler.clearing import Clearing
from jupyter_gpupool.scheduler.model import Placement, Promise, Seconds, Snapshot, Start, Work
from jupyter_gpupool.scheduler.precedence import Precedence
from jupyter_gpupool.scheduler.promises import Moved, Promises
from jupyter_gpupool.scheduler.ranking import Ranking
from jupyter_gpupool.scheduler.shortlist import Shortlist
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.scheduler.timeline import FOREVER


class Dispatch:
    """One pass: `run` once, then read `starts`, `promises`, the stops of `clearing`, and `order`.

    `order` is what still waits, best first.
    """

    def __init__(self, snapshot: Snapshot, now: Seconds, standing: Standing | None = None) -> None:
        self._standing = standing or Standing()
        self.board = self._standing.board(snapshot, now)
        self.feasible = self._standing.feasible(self.board)
        self.promises = Promises(self.board, self.eligible)
        self._precedence = Precedence(self.board, self.promises)
        self.clearing = Clearing(self.board, self.promises, self._precedence)
        self.starts: list[Start] = []
        self.order: list[Work] = []
        self._now = now
        self._snapshot = snapshot
        self._freed = False
        self._changed = False
        self._eased = False

    def eligible(self, work: Work) -> bool:
        """Say whether work takes part at all: not held, invalid or impossible, and not after other work."""
        return not (work.held or work.invalid or work.after) and self.feasible.possible(work)

    def run(self, works: Iterable[Work] | None = None) -> None:
        """Go through all that waits, or through `works` of it."""
        for work in self._ranked(self._snapshot.waiting if works is None else works):
            self._serve(work)
        self.promises.repair()
        self._catch_up()

    def run_fast(self) -> bool:
        """Go through what could start or take room, and through the rest only where promises are free.

        What starts is what `run` starts in its first round. Returns False when a start made room for
        works that were left out, or had been passed over: then `run` must decide.
        """
        queued = self._standing.queued(self._snapshot)
        shortlist = Shortlist(self.board, self.promises, self.clearing, self._precedence, queued)
        for work in self._ranked([work for work in self._snapshot.waiting if work.kind == "session"]):
            self._serve_listed(shortlist, work)
        candidate = shortlist.candidate()
        for work in self._ranked(shortlist.choose()) if candidate else ():
            if work.id in self._precedence.ahead:
                continue
            if not shortlist.matters(work):
                self._pass_over(work)
                continue
            self._serve_listed(shortlist, work)
            candidate = shortlist.candidate()
            if candidate is None:
                break
            if not shortlist.ranks(candidate):
                return False
        self.promises.repair()
        return not (self._freed and shortlist.any_fits(self.order))

    def _serve_listed(self, shortlist: Shortlist, work: Work) -> None:
        """Let `work` have its turn, and the list take note of what came of it."""
        self._changed = self._eased = False
        self._serve(work)
        if self._changed:
            shortlist.look_again()
        elif self._eased:
            shortlist.ease()

    def _ranked(self, works: Iterable[Work]) -> Iterator[Work]:
        """Yield works in order; promises that were moved are repaired before the next job."""
        board = self.board
        for work in Ranking(board, works, self.eligible):
            if work.kind == "job":
                self.promises.repair()
            yield work

    def _serve(self, work: Work) -> None:
        started = self._start_session(work) if work.kind == "session" else self._start_job(work)
        if started:
            self._precedence.ahead.add(work.id)
        else:
            self._pass_over(work)

    def _pass_over(self, work: Work) -> None:
        self.order.append(work)
        self._precedence.ahead.add(work.id)

    # -- sessions

    def _start_session(self, work: Work) -> bool:
        """Start a session, before which all promises of jobs give way, or keep room that it gets soon."""
        if self.board.gate(work, self._now) != self._now:
            return False
        own = self.promises.lift(work)
        if self._try(work):
            if self.board.limits.is_above(work.group):
                self.promises.put_back(self.promises.lift_if(_before_jobs(work)))
            return True
        lifted: list[Moved] = []
        started = False
        hopeful = own is None and self.clearing.may_claim(work)
        if hopeful or self.promises.any_due() or self.board.fits_for_a_moment(work):
            lifted = self.promises.lift_if(_before_jobs(work))
            started = self._try(work)
            if hopeful and not started:
                self._clear(work, None)
        if own is not None and not started:
            self.promises.sooner(work, own)
        self.promises.put_back(lifted)
        return started

    # -- jobs

    def _start_job(self, work: Work) -> bool:
        board, promises, now = self.board, self.promises, self._now
        ready = board.gate(work, now) == now
        promise = promises.get(work.id)
        if promise is not None and not self._could_be_sooner(work, promise):
            return ready and self._take_back(work)
        promises.lift(work)
        if ready and self._try(work):
            self._freed = self._freed or promise is not None
            return True
        if promise is not None:
            self._eased = promises.sooner(work, promise)
            self._freed = self._freed or self._eased
        elif self._overtake(work, ready):
            return True
        return ready and self._take_back(work)

    def _could_be_sooner(self, work: Work, promise: Promise) -> bool:
        """Say whether there are cards for a promised job sooner than is promised, whatever the limits."""
        if promise.start <= self._now:
            return True
        with self.promises.off_the_floor([promise]):
            return self.board.has_cards(work, promise.start)

    def _overtake(self, work: Work, ready: bool) -> bool:
        """Promise a job a start if it may have a promise; it goes before those that give way to it.

        Returns whether it could start at once.
        """
        board, promises, precedence = self.board, self.promises, self._precedence
        wants = promises.open_to(work.group) and may_be_promised(board, work)
        found = board.earliest(work) if wants else None
        hopeful = wants or (ready and (promises.any_due() or board.fits_for_a_moment(work)))
        if not (hopeful and precedence.may_overtake(work)):
            self._give(work, found)
            return False
        before = (found[0] if found else FOREVER) if wants else self._now + 1
        with promises.off_the_floor(promises.reserved(partial(precedence.overtakes, work))):
            gains = board.has_cards(work, before)
        lifted = promises.lift_if(partial(precedence.overtakes, work)) if gains else []
        started = bool(lifted) and ready and self._try(work)
        sooner = board.earliest(work, before) if wants and lifted and not started else None
        if not started:
            self._give(work, sooner or found)
        if started or sooner:
            promises.put_back(lifted)
            self._changed = True
        else:
            promises.leave(lifted)
        return started

    def _give(self, work: Work, found: tuple[Seconds, Placement] | None) -> None:
        if found is not None:
            self.promises.give(work, *found)

    def _take_back(self, work: Work) -> bool:
        """Ask others to stop for a job that is owed room, where nothing sooner is promised to it.

        Returns whether it could start at once, where others only had a promise.
        """
        own = self.promises.get(work.id)
        if not (self.clearing.may_take(work, own) and may_be_promised(self.board, work)):
            return False
        self.promises.lift(work)
        lifted = self.promises.lift_if(partial(self._precedence.takes_back, work))
        started = bool(lifted) and self._try(work)
        if started or self._clear(work, own):
            self.promises.put_back(lifted)
            return started
        if own is not None:
            self.promises.restore(own)
        self.promises.leave(lifted)
        return False

    def _clear(self, work: Work, own: Promise | None) -> bool:
        """Keep room that comes within a grace, by itself or since others are asked; say whether there is."""
        room = self.clearing.room(work)
        if room is None or (own is not None and own.start <= room.start):
            return False
        if own is None:
            self.promises.give(work, room.start, room.placement)
        else:
            self.promises.restore(replace(own, start=room.start, placement=room.placement))
        self.clearing.ask(work, room)
        self._changed = True
        return True

    # -- afterwards

    def _catch_up(self) -> None:
        """Start jobs that were passed over, where a promise that started or came sooner left room."""
        while self._freed:
            self._freed = False
            passed, self.order = self.order, []
            for work in passed:
                if work.kind == "session" or not self._start_passed(work):
                    self.order.append(work)

    def _start_passed(self, work: Work) -> bool:
        promise = self.promises.lift(work)
        if self.board.gate(work, self._now) == self._now and self._try(work):
            self._freed = self._freed or promise is not None
            return True
        if promise is not None:
            self.promises.restore(promise)
        return False

    def _is_inside(self, work: Work, placement: Placement) -> bool:
        """Say whether a group is inside quota with `work` there; what is promised for now is not yet held."""
        limits = self.board.limits
        with self.promises.uncounted(work.group):
            return limits.inside(work.group, limits.amounts(work, placement))

    def _try(self, work: Work) -> bool:
        found = self.board.attempt(work)
        if not isinstance(found, Placement):
            return False
        borrowed = work.kind == "job" and not self._is_inside(work, found)
        self.board.start(work, found)
        self.starts.append(Start(work.id, found, borrowed))
        self.clearing.started(work)
        self._precedence.started()
        self._changed = True
        return True


def _before_jobs(session: Work) -> Callable[[Work], str]:
    return lambda other: f"session {session.id}" if other.kind == "job" else ""
