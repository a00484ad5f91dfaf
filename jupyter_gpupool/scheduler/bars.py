"""What bars a work from a start, whatever its rank and the cards that are free.

Owns: the order of the reasons between a dependency and the room: its window, what its user and its array may
have at once, back-off, cards that are away, the group's quota, budgets; and under which of them a job may be
promised a start.
Never: the facts (`verdicts`), nor who has what the group is owed (`returns`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from jupyter_gpupool.scheduler.board import Board, Option
from jupyter_gpupool.scheduler.lines import Lack
from jupyter_gpupool.scheduler.model import Reason, Work

Bar = tuple[Reason, Lack | None]

PROMISED = (Reason.OUTSIDE_WINDOW, Reason.GROUP_QUOTA)
AT_ONCE = (Reason.USER_LIMIT, Reason.ARRAY_LIMIT)
NEVER_BORROWED = ("lasting", "owned")


def may_be_promised(board: Board, work: Work) -> bool:
    """Say whether a job that cannot start now may be promised a start."""
    found = bar(board, work, board.lacks(work))
    return found is None or found[0] in PROMISED


def bar(board: Board, work: Work, lacks: Sequence[Lack]) -> Bar | None:
    """Return the first thing that bars `work` at this moment, of `lacks` and others, with what lacks room."""
    if not board.in_window(work):
        return Reason.OUTSIDE_WINDOW, None
    by_reason = {lack.line.cap.reason: lack for lack in reversed(lacks)}
    for reason in AT_ONCE:
        if reason in by_reason:
            return reason, by_reason[reason]
    if work.not_before > board.time:
        return Reason.BACK_OFF, None
    options = board.options(work)
    if not options or _all_kept(board, options):
        return Reason.UNAVAILABLE, None
    beyond = _beyond_quota(board, work, lacks) if Reason.GROUP_QUOTA in by_reason else None
    if beyond is not None:
        return Reason.GROUP_QUOTA, beyond
    if Reason.BUDGET in by_reason:
        return Reason.BUDGET, by_reason[Reason.BUDGET]
    return None


def _all_kept(board: Board, options: tuple[Option, ...]) -> bool:
    """Say whether all cards that would serve are kept for others now, or for nobody."""
    if not board.snapshot.reservations:
        return False
    return all(
        option.bay.cards
        and all(card.kept_from(option.shelf.serving, board.time) for card in option.bay.cards)
        for option in options
    )


def _beyond_quota(board: Board, work: Work, lacks: Iterable[Lack]) -> Lack | None:
    """Return what the group can neither take of its own nor borrow: what it is owed is given back to it.

    That all cards are in use is no such lack, though a group at its quota could borrow none then either.
    """
    owed = board.limits.groups[work.group].quota.quota
    found = (lack for lack in lacks if lack.line.cap.reason is Reason.GROUP_QUOTA)
    if not board.inside(work):
        return next(found, None)
    return next((lack for lack in found if not _comes_back(lack, owed)), None)


def _comes_back(lack: Lack, owed: Container[str]) -> bool:
    return lack.line.cap.what not in NEVER_BORROWED and lack.line.cap.resource in owed
