"""What listeners are told of jobs and leases.

Owns: which facts an event carries: enough to know what to look at again, nothing that only the owner may
see. Never: the ring itself (see `events`).
"""

from __future__ import annotations

from jupyter_gpupool.ledger.records import Job, SessionRecord
from jupyter_gpupool.service.events import Bus
from jupyter_gpupool.service.progress import ProgressReply


class News:
    """Says what changed."""

    def __init__(self, bus: Bus):
        self._bus = bus

    def job(self, job: Job) -> None:
        """A job has another state."""
        self._bus.publish(
            "job",
            {
                "job": job.id,
                "state": job.state.value,
                "name": job.name,
                "user": job.owner,
                "attempt": job.attempt,
            },
        )

    def session(self, session: SessionRecord) -> None:
        """A session has another state."""
        self._bus.publish("lease", {"lease": session.id, "state": session.state.value, "user": session.owner})

    def progress(self, job: Job, progress: ProgressReply) -> None:
        """A job reported how far it is; that is for its owner."""
        self._bus.publish("progress", {"job": job.id, "progress": progress}, owner=job.owner)

    def policy(self) -> None:
        """Another policy is in force."""
        self._bus.publish("policy", {})
