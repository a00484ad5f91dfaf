"""What starts now and what is promised: one pass over the board.

Owns: the order of a pass: promises are carried, sessions placed, moved promises repaired, jobs
started, promised or passed over in rank order; and which works a fast pass may leave out because
they cannot start.
Never: estimates (`forecast`), reasons (`verdicts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.feasibility import Feasibility
from jupyter_gpupool.scheduler.model import Placement, Reason, Seconds, Snapshot, Start, Work
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.ranking import Ranking
from jupyter_gpupool.scheduler.shortlist import Shortlist


class Dispatch:
    """One pass; `run` once, then read `starts`, `promises` and `order` (what still waits, best first)."""

    def __init__(self, snapshot: Snapshot, now: Seconds) -> None:
        self.board = Board(snapshot, now)
        self.feasible = Feasibility(snapshot, self.board.floor, self.board.limits)
        self.starts: list[Start] = []
        self.order: list[Work] = []
        self._now = now
        self._snapshot = snapshot
        self._freed = False
        self.promises: Promises

    def eligible(self, work: Work) -> bool:
        """Say whether work takes part at all: not held, invalid or impossible, and not after other work."""
        return not (work.held or work.invalid or work.after) and self.feasible.possible(work)

    def run(self, works: Iterable[Work] | None = None) -> None:
        """Go through all that waits, or through `works` of it."""
        self.promises = Promises(self.board, self.eligible)
        for work in self._ranked(self._snapshot.waiting if works is None else works):
            self._serve(work)
        self.promises.repair()
        self._catch_up()

    def run_fast(self) -> bool:
        """Go through what could start, and through the rest only where promises are free; stop early.

        What starts is what `run` starts in its first round. Returns False when a start made room for
        works that were left out: then `run` must decide.
        """
        self.promises = Promises(self.board, self.eligible)
        shortlist = Shortlist(self.board, self.promises)
        served: set[int] = set()
        candidate = shortlist.candidate(served)
        for work in self._ranked(shortlist.choose()) if candidate else ():
            served.add(work.id)
            if self._serve(work):
                shortlist.look_again()
            candidate = shortlist.candidate(served)
            if candidate is None:
                break
            if not shortlist.ranks(candidate):
                return False
        self.promises.repair()
        return True

    def _ranked(self, works: Iterable[Work]) -> Iterator[Work]:
        """Yield works in order; promises that sessions moved are repaired before the first job."""
        board = self.board
        for work in Ranking(self._snapshot, board.limits, works, board.measure, self.eligible):
            if work.kind == "job":
                self.promises.repair()
            yield work

    def _serve(self, work: Work) -> bool:
        started = self._start_session(work) if work.kind == "session" else self._start_job(work)
        if not started:
            self.order.append(work)
        return started

    def _start_session(self, work: Work) -> bool:
        if self.board.gate(work, self._now) != self._now:
            return False
        if self._try(work):
            return True
        if not self.promises.any_due() and not self.board.fits_for_a_moment(work):
            return False
        lifted = self.promises.lift_all()
        started = self._try(work)
        self.promises.put_back(lifted, f"session {work.id}")
        return started

    def _start_job(self, work: Work) -> bool:
        board, promises, now = self.board, self.promises, self._now
        promise = promises.lift(work)
        ready = board.gate(work, now) == now
        if ready and self._try(work):
            self._freed = self._freed or promise is not None
            return True
        if promise is not None:
            self._freed = promises.sooner(work, promise) or self._freed
        elif promises.open_to(work.group) and self._may_be_promised(work):
            found = board.earliest(work)
            if found is not None:
                promises.give(work, *found)
        return False

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

    def _may_be_promised(self, work: Work) -> bool:
        if work.not_before > self._now:
            return False
        short = self.board.short(work)
        return short is None or short[0].cap.reason is not Reason.USER_LIMIT

    def _try(self, work: Work) -> bool:
        found = self.board.attempt(work)
        if not isinstance(found, Placement):
            return False
        self.board.start(work, found)
        self.starts.append(Start(work.id, found))
        return True
