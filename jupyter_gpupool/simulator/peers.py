"""Two classical schedulers to compare with, on the same cards and with the same placement.

Owns: first come, first served (nobody passes the head of the queue), and EASY backfill (the head has the
first start it can have; whoever does not delay it may pass). Both know no quotas, user limits or priorities;
sessions come first in both. Never: the choice of cards, which is the scheduler's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jupyter_gpupool.frame import Frame
from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import (
    Group,
    Placement,
    Plan,
    PriorityClass,
    Promise,
    Quota,
    Request,
    Seconds,
    Snapshot,
    Start,
    UserLimits,
    Work,
)
from jupyter_gpupool.scheduler.quota import GPU, POOL
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.simulator.engine import Discipline


def fifo(snapshot: Snapshot, now: Seconds, standing: Standing) -> Plan:
    """Start jobs in the order of submission, until one does not fit."""
    board = standing.board(snapshot, now)
    starts = _sessions(board)
    for work in _jobs(snapshot):
        if not _started(board, work, starts):
            break
    return Plan(tuple(starts), (), (), {})


def easy(snapshot: Snapshot, now: Seconds, standing: Standing) -> Plan:
    """Start jobs in the order of submission; behind the first that waits, those that do not delay it."""
    board = standing.board(snapshot, now)
    starts = _sessions(board)
    head: tuple[Promise, ...] = ()
    lacking: dict[Request, Seconds] = {}  # no room for so much, for so long
    for work in _jobs(snapshot):
        if work.limit >= lacking.get(work.request, work.limit + 1) or _started(board, work, starts):
            continue
        lacking[work.request] = work.limit
        if not head:
            head = _promise(board, work)
            for promise in head:
                board.book(work, promise.placement, promise.start, promise.start + work.limit)
    return Plan(tuple(starts), head, (), {})


def without_limits(frame: Frame) -> Frame:
    """Return the frame with nothing but its cards to bound what anybody may have."""
    everything = Quota({GPU: 1000 * len(frame.gpus)})
    return replace(
        frame,
        groups={name: Group(name, POOL, everything) for name in frame.groups},
        users={name: UserLimits() for name in frame.users},
        priorities={name: PriorityClass(name, 0) for name in frame.priorities},
    )


def _sessions(board: Board) -> list[Start]:
    starts: list[Start] = []
    for work in board.snapshot.waiting:
        if work.kind == "session":
            _started(board, work, starts)
    return starts


def _jobs(snapshot: Snapshot) -> Iterable[Work]:
    return (work for work in snapshot.waiting if work.kind == "job")


def _started(board: Board, work: Work, starts: list[Start]) -> bool:
    if board.gate(work, board.time) != board.time:
        return False
    found = board.attempt(work)
    if not isinstance(found, Placement):
        return False
    board.start(work, found)
    starts.append(Start(work.id, found))
    return True


def _promise(board: Board, work: Work) -> tuple[Promise, ...]:
    """Return the first start that the head of the queue can have."""
    found = board.earliest(work)
    return (Promise(work.id, *found, board.time),) if found else ()


FIFO = Discipline("FIFO", fifo, None, without_limits, in_turn=True)
EASY = Discipline("EASY backfill", easy, None, without_limits)
