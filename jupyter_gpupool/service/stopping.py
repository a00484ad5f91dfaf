"""Which stops of a plan are carried out, and what their owners read.

Owns: whether what a plan said of those who must leave still holds, and the sentence that tells why. Pure.
Never: who must leave (the scheduler says that), or how they are asked (see `runs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpupool.ledger.records import LeaseRecord
from jupyter_gpupool.ledger.stops import StopOrder
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.scheduler.model import Stop, StopCause


def orders(stops: Sequence[Stop], ledger: Ledger) -> list[StopOrder]:
    """Return the stops that can be asked for now.

    Work that gets the room must still be promised it; and it gets it only if all leave who should, so where
    one of them does not hold its lease any more, nobody is asked for that work.
    """
    void = {stop.taker for stop in stops if not ledger.stops.possible(stop)}
    return [
        StopOrder(stop, sentence(stop.cause, ledger.leases[stop.lease], stop.taker, ledger))
        for stop in stops
        if ledger.stops.possible(stop)
        and (stop.taker is None or (stop.taker in ledger.promises and stop.taker not in void))
    ]


def sentence(cause: StopCause, lease: LeaseRecord, taker: int | None, ledger: Ledger) -> str:
    """Say why a job leaves, and for whom."""
    match cause:
        case "hand_back":
            return f"Stopped because the lent cards of {lease.placement.partition} are handed back."
        case "session":
            return f"Stopped for {_taker(taker, ledger)}, which needs the card that was lent."
        case "reclaim":
            return f"Stopped for {_taker(taker, ledger)}, which takes back what its group is owed."
        case "preempt":
            return f"Stopped for {_taker(taker, ledger)}, whose priority goes before."


def _taker(number: int | None, ledger: Ledger) -> str:
    found = ledger.jobs.get(number or 0) or ledger.sessions.get(number or 0)
    if found is None:
        return f"work {number}"
    kind = "session" if found.id in ledger.sessions else "job"
    return f"{kind} {number} of the group {found.group}"
