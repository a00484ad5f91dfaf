"""What a plan has decided, in few words."""

from __future__ import annotations

from jupyter_gpupool.scheduler.model import Plan, Reason, Seconds


def started(decided: Plan) -> list[int]:
    """Return the works that start, in order."""
    return [start.work for start in decided.starts]


def promised(decided: Plan) -> dict[int, Seconds]:
    """Return when each work that has a promise starts."""
    return {promise.work: promise.start for promise in decided.promises}


def expected(decided: Plan) -> dict[int, Seconds | None]:
    """Return when each work that waits is expected to start."""
    return {id_: verdict.expected_start for id_, verdict in decided.verdicts.items()}


def reasons(decided: Plan) -> dict[int, Reason]:
    """Return why each work waits."""
    return {id_: verdict.reason for id_, verdict in decided.verdicts.items()}


def moves(decided: Plan) -> list[tuple[int, Seconds, Seconds, str]]:
    """Return the promises that are later now: whose, from when to when, and the cause."""
    return [(move.work, move.was, move.now, move.cause) for move in decided.moves]
