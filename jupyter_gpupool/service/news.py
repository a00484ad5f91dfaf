"""What listeners are told of jobs and leases.

Owns: which facts an event carries: enough to know what to look at again, nothing that only the owner may
see. Never: the ring itself (see `events`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jupyter_gpupool.ledger.grant_records import RequestRecord
from jupyter_gpupool.ledger.records import Job, SessionRecord
from jupyter_gpupool.service.events import Bus
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.progress import ProgressReply


class News:
    """Says what changed.

    Parameters
    ----------
    on_job
        Called too with a job that has another state.
    """

    def __init__(self, bus: Bus, on_job: Callable[[Job], None] = lambda job: None):
        self._bus = bus
        self._on_job = on_job

    def job(self, job: Job) -> None:
        """A job has another state."""
        self._on_job(job)
        self._bus.publish(
            "job",
            {
                "job": job.id,
                "state": job.state.value,
                "name": job.name,
                "user": job.owner,
                "attempt": job.attempt,
                "array": job.array,
                "index": job.index,
            },
        )

    def session(self, session: SessionRecord) -> None:
        """A session has another state."""
        self._bus.publish("lease", {"lease": session.id, "state": session.state.value, "user": session.owner})

    def warning(self, whose: Job | SessionRecord, text: str, ends: int | None = None) -> None:
        """The owner of a job or session is to know something, such as when it ends."""
        what = "job" if isinstance(whose, Job) else "lease"
        self._bus.publish("warning", {what: whose.id, "text": text, "ends_at": iso(ends)}, owner=whose.owner)

    def progress(self, job: Job, progress: ProgressReply) -> None:
        """A job reported how far it is; that is for its owner."""
        self._bus.publish("progress", {"job": job.id, "progress": progress}, owner=job.owner)

    def grants(self) -> None:
        """Something was granted, or has ended."""
        self._bus.publish("grants", {})

    def request(self, request: RequestRecord, whom: Iterable[str]) -> None:
        """A request has another state; that is for who asked and who may decide."""
        for user in whom:
            self._bus.publish("request", {"request": request.id, "state": request.state.value}, owner=user)

    def policy(self) -> None:
        """Another policy is in force."""
        self._bus.publish("policy", {})
