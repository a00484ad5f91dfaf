"""Whether a job whose program has failed is tried again.

Owns: that only failures of the program count, and how long it waits. Pure. Never: what an end means.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpupool.engines.base import Ended
from jupyter_gpupool.ledger.records import Job, JobState
from jupyter_gpupool.service.outcomes import Outcome

FIRST_S, LONGEST_S = 10, 1800


@dataclass(frozen=True, slots=True)
class Retry:
    """The job is queued again, with the reason, and rests for so many seconds."""

    reason: str
    rest_s: int


def retry(job: Job, ended: Ended, outcome: Outcome) -> Retry | None:
    """Return how a job is tried again; None if this end is its last.

    A time limit reached, a cancelled job, and what the machine did to it are no failures of the program.
    """
    if outcome.state is not JobState.FAILED or ended.cause != "exit" or job.failures >= job.retries:
        return None
    turn = job.failures + 1
    rest = min(LONGEST_S, FIRST_S << min(turn - 1, 16))
    return Retry(f"{outcome.sentence} It is tried again: retry {turn} of {job.retries}.", rest)
