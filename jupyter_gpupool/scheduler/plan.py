"""Who gets what next: the one decision of the pool, as a pure function of a snapshot.

Owns: putting together the pass (`dispatch`), the reasons (`verdicts`) and the estimates (`forecast`).
Never: a clock, a file, a socket; a memory of earlier calls, but for what a caller keeps in a `Standing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jupyter_gpupool.scheduler.dispatch import Dispatch
from jupyter_gpupool.scheduler.forecast import forecast
from jupyter_gpupool.scheduler.model import Placement, Plan, Seconds, Snapshot, Verdict
from jupyter_gpupool.scheduler.standing import Standing
from jupyter_gpupool.scheduler.verdicts import Judge


def plan(snapshot: Snapshot, now: Seconds) -> Plan:
    """Decide what starts now, who is asked to stop, what is promised, and why and until when the rest waits.

    Parameters
    ----------
    snapshot
        The pool as the ledger knows it.
    now
        Seconds since the epoch, UTC. A lease that starts by this plan ends at `now` + its limit.
    """
    return plan_with_places(snapshot, now)[0]


def fill(snapshot: Snapshot, now: Seconds, standing: Standing | None = None) -> Plan:
    """Decide only what starts now and who is asked to stop for it: the fast pass after a job's end.

    Its starts are the first of those that `plan` would make. Its `verdicts` are empty; its promises, moves
    and stops are to be taken like those of `plan`. Passes of one caller that follow each other are faster
    with a `standing` of its own.
    """
    standing = standing or Standing()
    dispatch = Dispatch(snapshot, now, standing)
    if not dispatch.run_fast():
        standing.keep(dispatch.board)
        dispatch = Dispatch(snapshot, now, standing)
        dispatch.run()
    standing.keep(dispatch.board)
    return _plan(dispatch, {})


def plan_with_places(snapshot: Snapshot, now: Seconds) -> tuple[Plan, Mapping[int, Placement]]:
    """Plan, and tell also where the works that have only an estimate are expected to run."""
    dispatch = Dispatch(snapshot, now)
    dispatch.run()
    promises = dispatch.promises.all()
    judge = Judge(dispatch.board, dispatch.feasible, promises, dispatch.clearing.stops)
    ranked = {work.id for work in dispatch.order} | {start.work for start in dispatch.starts}
    judged = {work.id: judge.unranked(work) for work in snapshot.waiting if work.id not in ranked}
    judged.update((work.id, judge.ranked(work)) for work in dispatch.order)
    estimates = forecast(dispatch.board, dispatch.order, dispatch.starts, promises)
    expected = {id_: start for id_, (start, _) in estimates.items()}
    expected.update((promise.work, promise.start) for promise in promises)
    promised = {promise.work for promise in promises}
    positions: dict[int, int] = {}
    counts: Counter[str] = Counter()
    for work in dispatch.order:
        counts[work.kind] += 1
        positions[work.id] = counts[work.kind]
    verdicts = {
        id_: Verdict(id_, reason, facts, positions.get(id_), expected.get(id_), id_ in promised)
        for id_, (reason, facts) in judged.items()
    }
    places = {id_: placement for id_, (_, placement) in estimates.items()}
    return _plan(dispatch, verdicts), places


def _plan(dispatch: Dispatch, verdicts: Mapping[int, Verdict]) -> Plan:
    promises = dispatch.promises
    return Plan(
        tuple(dispatch.starts), promises.all(), promises.moves(), verdicts, tuple(dispatch.clearing.stops)
    )
