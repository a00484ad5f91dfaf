"""Who gets what next: the one decision of the pool, as a pure function of a snapshot.

Owns: the order of the passes (promises kept, sessions, jobs, estimates).
Never: a clock, a file, a socket; nothing is remembered between two calls.
"""

from __future__ import annotations

from jupyter_gpupool.scheduler.model import Plan, Seconds, Snapshot


def plan(snapshot: Snapshot, now: Seconds) -> Plan:
    """Decide what starts now, what is promised, and why and until when the rest waits.

    Parameters
    ----------
    snapshot
        The pool as the ledger knows it.
    now
        Seconds since the epoch, UTC.
    """
    return Plan((), snapshot.promises, (), {})


def fill(snapshot: Snapshot, now: Seconds) -> Plan:
    """Decide only what starts now: the fast pass after a job's end. Its `verdicts` are empty."""
    return Plan((), snapshot.promises, (), {})
