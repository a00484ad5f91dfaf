"""What starts now, what is promised and who is asked to stop: one pass over the board.

Owns: the order of a pass: promises are carried, sessions placed, moved promises repaired, jobs started,
promised or passed over in rank order; where promises give way and room is asked for; and which works a fast
pass may leave out because nothing can be done for them.
Never: estimates (`forecast`), reasons (`verdicts`), the rules of giving way (`precedence`, `stopping`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.clearing import Clearing
from jupyter_gpupool.scheduler.feasibility import Feasibility
from jupyter_gpupool.scheduler.model import Placement, Promise, Reason, Seconds, Snapshot, Start, Work
from jupyter_gpupool.scheduler.precedence import Precedence
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.ranking import Ranking
from jupyter_gpupool.scheduler.shortlist import Shortlist
from jupyter_gpupool.scheduler.timeline import FOREVER


class Dispatch:
    """One pass; `run` once, then read `starts`, `promises`, `stops` and `order` (what still waits, best first)."""

    def __init__(self, snapshot: Snapshot, now: Seconds) -> None:
        self.board = Board(snapshot, now)
        self.feasible = Feasibility(snapshot, self.board.floor, self.board.limits)
        self.promises = Promises(self.board, self.eligible)
        self.clearing = Clearing(self.board, self.promises)
        self.starts: list[Start] = []
        self.order: list[Work] = []
        self._precedence = Precedence(self.board)
        self._now = now
        self._snapshot = snapshot
        self._freed = False
        self._changed = False

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
        works that were left out: then `run` must decide.
        """
        shortlist = Shortlist(self.board, self.promises, self.clearing)
        candidate = shortlist.candidate(self._precedence.ahead)
        for work in self._ranked(shortlist.choose()) if candidate else ():
            self._changed = False
            self._serve(work)
            if self._changed:
                shortlist.look_again()
            candidate = shortlist.candidate(self._precedence.ahead)
            if candidate is None:
                break
            if not shortlist.ranks(candidate):
                return False
        self.promises.repair()
        return True

    def _ranked(self, works: Iterable[Work]) -> Iterator[Work]:
        """Yield works in order; promises that were moved are repaired before the next job."""
        board = self.board
        for work in Ranking(self._snapshot, board.limits, works, board.measure, self.eligible):
            if work.kind == "job":
                self.promises.repair()
            yield work

    def _serve(self, work: Work) -> None:
        self._precedence.ahead.add(work.id)
        if self.board.gate(work, self._now) != self._now:
            self._wait(work)
        elif not (self._start_session(work) if work.kind == "session" else self._start_job(work)):
            self.order.append(work)

    # -- sessions

    def _start_session(self, work: Work) -> bool:
        """Start a session, for which all promises of jobs give way, or keep the room that it gets soon."""
        own = self.promises.lift(work)
        if self._try(work):
            return True
        hopeful = own is None and self.clearing.may_claim(work)
        started = False
        if hopeful or self.promises.any_due() or self.board.fits_for_a_moment(work):
            lifted = self._lift(lambda other: f"session {work.id}" if other.kind == "job" else "")
            started = self._try(work)
            if hopeful and not started:
                self._clear(work, own)
            self.promises.put_back(lifted)
        if own is not None and not started:
            self.promises.sooner(work, own)
        return started
