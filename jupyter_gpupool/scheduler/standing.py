"""What stays as it is from one fast pass to the next.

Owns: the board of the last pass, with what was found out about the works that still wait; both are made anew
for a pool that is another one, or under other rules.
Never: a decision: a pass decides the same without it.
"""

from __future__ import annotations

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.feasibility import Feasibility
from jupyter_gpupool.scheduler.model import Seconds, Snapshot
from jupyter_gpupool.scheduler.queued import Queued


class Standing:
    """The last pass of one caller; for one pass at a time, each of a snapshot no older than the last."""

    def __init__(self) -> None:
        self._board: Board | None = None
        self._feasible: Feasibility | None = None
        self._queued = Queued()

    def board(self, snapshot: Snapshot, now: Seconds) -> Board:
        """Return a snapshot laid out."""
        board, self._board = self._board, None
        if board is not None and board.serves_also(snapshot, now):
            board.turn_to(snapshot, now)
            return board
        self._feasible = None
        return Board(snapshot, now)

    def keep(self, board: Board) -> None:
        """Go on from the board of a pass that has come to its end."""
        self._board = board

    def feasible(self, board: Board) -> Feasibility:
        """Return what could ever run on the board that was returned last."""
        if self._feasible is None:
            self._feasible = Feasibility(board.snapshot, board.floor, board.limits)
        else:
            self._feasible.turn_to(board.snapshot)
        return self._feasible

    def queued(self, snapshot: Snapshot) -> Queued:
        """Return what waits, sorted in."""
        self._queued.turn_to(snapshot.waiting)
        return self._queued
