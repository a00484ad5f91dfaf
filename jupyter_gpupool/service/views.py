"""Jobs and leases as replies.

Owns: what each asker may see of a job or lease, in the shapes of `replies`. Never: a decision.
"""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpupool.devices import modes
from jupyter_gpupool.ledger.records import Job, JobState, LeaseRecord, SessionRecord, SessionState
from jupyter_gpupool.scheduler.model import Placement, Reason, Request, Verdict
from jupyter_gpupool.scheduler.reasons import Explanation
from jupyter_gpupool.service.commands import granted
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.naming import label
from jupyter_gpupool.service.progress import Progress
from jupyter_gpupool.service.replies import (
    JobReply,
    LeaseReply,
    PlacementReply,
    RequestReply,
    StopReply,
    WaitingReply,
)
from jupyter_gpupool.service.stopping import sentence
from jupyter_gpupool.service.visibility import sees_names

LEASE_STATES: Mapping[SessionState, str] = {
    SessionState.WAITING: "requested",
    SessionState.HELD: "held",
    SessionState.RELEASING: "releasing",
    SessionState.ENDED: "free",
}
OWNERS_LIMIT = Explanation("The limit of its owner is reached.", "It clears when work of the owner ends.")
"""What those who see no names are told of a user's limit."""

UNHEARD = "This pool has no way to send you a message; --notify is of no use here."


class Views:
    """Makes replies out of records.

    Parameters
    ----------
    survival
        One sentence on what a job's life depends on here; empty when it depends on nothing.
    """

    def __init__(self, config: ServiceConfig, controller: Controller, progress: Progress, survival: str):
        self._config = config
        self._controller = controller
        self._progress = progress
        self._ledger = controller.ledger
        self._survival = survival
        self._jobs = str(config.jobs)

    def job(self, job: Job, who: Identity, verdict: Verdict | None = None) -> JobReply:
        """Return a job as `who` may see it; `verdict` = what the last plan said about it."""
        own = job.owner == who.user
        named = own or sees_names(self._controller.policy, who)
        lease = self._ledger.leases[job.lease] if job.lease is not None and not job.state.waiting else None
        running = lease is not None and job.state in (JobState.RUNNING, JobState.STOPPING)
        folder = f"{self._jobs}/{job.id}"
        return {
            "id": job.id,
            "name": job.name if named else None,
            "kind": job.kind,
            "state": job.state.value,
            "user": job.owner if named else None,
            "group": job.group,
            "priority": job.priority,
            "partition": lease.placement.partition if lease else job.request.partition,
            "request": request_reply(job.request),
            "time_s": job.limit_s,
            "grace_s": job.grace_s,
            "window": job.window,
            "resumable": job.resumable,
            "submitted_at": iso(job.submitted),
            "started_at": iso(job.started),
            "ended_at": iso(job.ended),
            "expires_at": iso(lease.latest) if lease and running else None,
            "attempt": job.attempt,
            "exit_code": job.exit_code,
            "signal": job.signal,
            "outcome": job.reason if job.state.ended and named else None,
            "reason": (job.reason or None) if named else None,
            "waiting": self.waiting(job, verdict, named=named) if job.state.waiting else None,
            "placement": self.placement(lease.placement, lease.mode) if lease else None,
            "progress": self._progress.of(job) if own else None,
            "diagnosis": dict(job.diagnosis) if own and job.diagnosis else None,
            "folder": folder if own else None,
            "out": f"{folder}/out" if own else None,
            "log": f"{folder}/{max(1, job.attempt)}/log" if own else None,
            "workdir": (job.workdir or None) if own else None,
            "stops": [self._stop(lease) for lease in self._ledger.stops.of(job.id)] if named else [],
            "warnings": self._warnings(job) if own and not job.state.ended else [],
            "simulated": self._controller.pool.simulated,
            "array": None,
            "array_id": job.array,
            "array_index": job.index,
            "after": list(job.after),
            "after_any": list(job.after_any),
            "retries": job.retries,
            "failures": job.failures,
            "notify": list(job.notify) if own else [],
        }

    def _warnings(self, job: Job) -> list[str]:
        wants = job.notify not in ((), ("none",))
        unheard = wants and not self._controller.policy.notify.reaches(job.owner)
        return [*([self._survival] if self._survival else []), *([UNHEARD] if unheard else [])]

    def waiting(self, job: Job, verdict: Verdict | None, *, named: bool = True) -> WaitingReply:
        """Say why a job waits; until a plan knows it, that it has just come."""
        if job.state is JobState.HELD:
            return plain(
                "Held",
                f"Held: {(job.held if named else '') or 'by hand'}.",
                f"Let it start with: jupyter gpupool release {label(job)}",
            )
        return self._verdict(verdict, named=named)

    def _verdict(self, verdict: Verdict | None, *, named: bool = True) -> WaitingReply:
        if not self._controller.policies.usable:
            return plain(
                "Unavailable",
                "The policy file is not good, and there has been none before: nothing new starts.",
                f"An administrator corrects {self._config.policy_file}.",
            )
        if verdict is None:
            return plain(
                "Priority", "It has just been queued and is being planned.", "The next plan, in a moment."
            )
        found = self._controller.forecast.explain(verdict)
        if verdict.reason is Reason.USER_LIMIT and not named:
            found = OWNERS_LIMIT
        kind = None if verdict.expected_start is None else "promise" if verdict.promised else "estimate"
        return {
            "reason": verdict.reason.value,
            "message": found.message,
            "clears": found.clears,
            "position": verdict.position,
            "expected_start": iso(verdict.expected_start),
            "kind": kind,  # type: ignore[typeddict-item]
        }

    def lease(self, session: SessionRecord, who: Identity, verdict: Verdict | None = None) -> LeaseReply:
        """Return a session's lease as `who` may see it."""
        lease = self._ledger.leases[session.lease] if session.lease is not None else None
        own = session.owner == who.user
        return {
            "id": session.id,
            "state": LEASE_STATES[session.state],
            "user": session.owner,
            "group": session.group,
            "name": session.name,
            "server": _server_name(session),
            "pid": session.pid if own else None,
            "request": request_reply(session.request),
            "time_s": session.limit_s,
            "submitted_at": iso(session.submitted),
            "started_at": iso(session.started),
            "ended_at": iso(session.ended),
            "expires_at": iso(lease.end) if lease and session.state is SessionState.HELD else None,
            "waiting": self._verdict(verdict) if session.state is SessionState.WAITING else None,
            "placement": self.placement(lease.placement, lease.mode) if lease else None,
            "environment": self._lease_environment(lease) if lease and own else {},
            "reason": session.reason or None,
            "simulated": self._controller.pool.simulated,
        }

    def _stop(self, lease: LeaseRecord) -> StopReply:
        assert lease.cause, "only leases that were asked for others are stops"
        return {
            "cause": lease.cause,
            "message": sentence(lease.cause, lease, lease.taker, self._ledger),
            "taker": lease.taker,
            "asked_at": iso(lease.asked),
            "leaves_by": iso(lease.latest),
        }

    def placement(self, placement: Placement, mode: str) -> PlacementReply:
        """Return where work runs."""
        cards = self._controller.frame.cards_of(placement)
        return {
            "nodes": list(placement.nodes),
            "gpus": [
                {
                    "uuid": share.uuid,
                    "mib": share.mib,
                    "index": cards[share.uuid].index if share.uuid in cards else None,
                    "node": cards[share.uuid].node if share.uuid in cards else None,
                }
                for share in placement.gpus
            ],
            "mode": mode,
            "isolation": modes.ISOLATION[mode],
        }

    def _lease_environment(self, lease: LeaseRecord) -> dict[str, str]:
        return granted(lease, self._controller.frame.card_mib(lease.placement))


def _server_name(session: SessionRecord) -> str | None:
    return None if session.server is None else session.server.partition("/")[2]


def request_reply(request: Request) -> RequestReply:
    """Return what work asks for."""
    return {
        "gpus": request.gpus,
        "gpu_mib": request.gpu_mib,
        "gpu_types": list(request.gpu_types),
        "cpus_milli": request.cpus_milli,
        "memory_mib": request.memory_mib,
    }


def plain(reason: str, message: str, clears: str) -> WaitingReply:
    """Say why something waits that no plan has looked at."""
    return {
        "reason": reason,
        "message": message,
        "clears": clears,
        "position": None,
        "expected_start": None,
        "kind": None,
    }
