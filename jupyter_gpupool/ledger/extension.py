"""More time for a job or a session.

Owns: the change of records by which work may go on longer. Pure. Never: who may have it, or the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jupyter_gpupool.ledger.database import Change
from jupyter_gpupool.ledger.errors import IllegalTransition
from jupyter_gpupool.ledger.records import Job, JobState, LeaseRecord, LeaseState, SessionRecord, SessionState

_EXTENDABLE = (JobState.QUEUED, JobState.HELD, JobState.STARTING, JobState.RUNNING)


def extended(work: Job | SessionRecord, more: int, leases: Mapping[int, LeaseRecord]) -> Change:
    """Return the change that gives work, waiting or running, `more` seconds.

    Raises
    ------
    IllegalTransition
        It has ended, or is about to.
    """
    longer = replace(work, limit_s=work.limit_s + more)
    if isinstance(longer, Job):
        if longer.state not in _EXTENDABLE:
            raise IllegalTransition(f"job {work.id} is {work.state.value}: it can have no more time.")
        change = Change(jobs={work.id: longer})
        runs = longer.state.live
    else:
        if not longer.state.live:
            raise IllegalTransition(f"session {work.id} is {work.state.value}: it can have no more time.")
        change = Change(sessions={work.id: longer})
        runs = longer.state is SessionState.HELD
    if runs and work.lease is not None:
        lease = leases[work.lease]
        if lease.state is LeaseState.RELEASING:
            raise IllegalTransition(f"{lease.kind} {work.id} ends already: it can have no more time.")
        change.leases[lease.id] = replace(lease, end=lease.end + more)
    return change
