"""Every address of the service, in one table.

Owns: method, path, who may, what comes in, what goes out. The application and the OpenAPI document are made
from it, so they cannot differ. Never: what a handler does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from jupyter_gpupool.client.names import PREFIX
from jupyter_gpupool.service import grant_replies, grant_wire, replies, report_replies, wire
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.handlers import (
    actions,
    admin,
    boosts,
    files,
    jobs,
    leases,
    nodes,
    past,
    pool,
    quota,
    reports,
    requests,
    reservations,
    spawns,
)
from jupyter_gpupool.service.scopes import Action

API = f"{PREFIX}/api/v1"

Resource = Literal["pool", "queue", "job", "files", "snapshot", "lease", "policy", "grant", "service"]
Stream = Literal["events", "upload"]
Handle = Callable[[Call[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    type: type[int] | type[str] | type[bool]
    default: Any
    summary: str
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one address.

    Attributes
    ----------
    action, resource
        What is done to what; `scopes` says who may. What people change must be theirs: `Call` sees to that.
    handle
        Does it.
    body, reply
        The model of what comes in, the shape of what goes out; `bytes` = not JSON, None = nothing.
    stream
        The request or reply is a stream, which the application itself moves.
    by_job
        A job's own token is enough, for that job.
    by_anybody
        It answers also whoever does not say who they are.
    """

    method: Literal["GET", "HEAD", "POST", "PUT", "DELETE"]
    path: str
    action: Action
    resource: Resource
    summary: str
    handle: Handle
    reply: Any = replies.DoneReply
    body: type[BaseModel] | None = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    stream: Stream | None = None
    by_job: bool = False
    by_anybody: bool = False

    @property
    def name(self) -> str:
        """The operation's id."""
        words = [
            part.strip("{}").replace(".", "_") for part in self.path.removeprefix(PREFIX).split("/") if part
        ]
        return "_".join([self.method.lower(), *(word for word in words if word not in ("api", "v1"))])


OFFSET = Parameter(
    "offset", int, 0, "First byte wanted; negative counts from the end.", least=-(2**62), most=2**62
)
ATTEMPT = Parameter("attempt", int, None, "Which run of the job; the latest by default.", least=1, most=10**9)
WAIT = Parameter("wait", int, 0, "Seconds to wait for something new.", least=0, most=60)
STATE = Parameter("state", str, None, "Only jobs in these states, separated by commas.")
ARRAY = Parameter("array", int, None, "The tasks of this array.", least=1, most=2**62)
LIMIT = Parameter("limit", int, 100, "At most so many.", least=1, most=10_000)
DRY_RUN = Parameter("dry_run", bool, False, "Say where and when it would start, and submit nothing.")
DAYS = Parameter("days", int, 7, "How many days back.", least=1, most=366)
WEEK = Parameter("week", str, None, "this, last, 2026-W42, or a day of the week.")
MONTH = Parameter("month", str, None, "this, last, or 2026-10.")
GROUP = Parameter("group", str, None, "Only this group, with all below it.")
BY_USER = Parameter("user", str, None, "Only what this user used.")
AT = Parameter("at", str, None, "The moment, on the site's clocks unless it says otherwise; now by default.")
GPU = Parameter("gpu", str, None, "Only this card: its UUID or how that begins, or node1:0.")

USER = Parameter("user", str, None, "Whose server it would be.")
ALL = Parameter("all", bool, False, "Also those that are decided.")
GROUPS = Parameter("groups", str, None, "The user's groups on the Hub, separated by commas.")


def _look(path: str, resource: Resource, summary: str, handle: Handle, reply: Any, **more: Any) -> Route:
    return Route("GET", f"{API}/{path}", "read", resource, summary, handle, reply, **more)


def _act(verb: str, summary: str, handle: Handle, body: type[BaseModel] | None = None) -> Route:
    path = f"{API}/jobs/{{id}}/{verb}"
    return Route("POST", path, "change", "job", summary, handle, replies.JobReply, body=body)


def _grant(
    path: str, action: Action, summary: str, handle: Handle, reply: Any, body: type[BaseModel] | None = None
) -> Route:
    """Return the route that makes something (with a body), or ends it."""
    method: Literal["POST", "DELETE"] = "POST" if body else "DELETE"
    return Route(method, f"{API}/{path}", action, "grant", summary, handle, reply, body=body)


LOG = "A job's output from an offset; X-Gpupool-Offset is the next, X-Gpupool-Ended says if it is the end."
SUBMIT = "Submit a job; the same Idempotency-Key gives the same job."
ACQUIRE = "Ask for a lease: 201 when it is held, 202 when it waits."
SPAWN = "Ask for the lease of a Hub's server: 201 when it is held, 202 when it waits."
SNAPSHOT = "Send the code of a job: an uncompressed tar."
EVENTS = "What happens, as server-sent events; Last-Event-ID resumes."

ROUTES: tuple[Route, ...] = (
    _look(
        "whoami", "pool", "Who asks, and which pool this is.", pool.whoami, replies.WhoamiReply, by_job=True
    ),
    _look("quota", "pool", "What the user's groups may use, and do.", quota.quota, replies.QuotaReply),
    _look("pool", "pool", "The cards and who is on them.", pool.pool, replies.PoolReply),
    _look("queue", "queue", "What waits, in order, and what runs.", jobs.queue, replies.QueueReply),
    _look(
        "jobs",
        "job",
        "The user's jobs, newest first.",
        jobs.list_jobs,
        replies.JobsReply,
        query=(STATE, LIMIT, ARRAY),
    ),
    Route(
        "POST",
        f"{API}/jobs",
        "submit",
        "job",
        SUBMIT,
        jobs.submit,
        replies.JobReply | replies.DryRunReply,
        body=wire.JobRequest,
        status=201,
        query=(DRY_RUN,),
    ),
    _look("jobs/{id}", "job", "One job, and why it waits.", jobs.show, replies.JobReply, by_job=True),
    _act("cancel", "End a job.", actions.cancel),
    _act("hold", "Keep a job from starting.", actions.hold),
    _act("release", "Let a held job start.", actions.release),
    _act("requeue", "Stop a job and queue it again.", actions.requeue),
    _act(
        "extend", "Give a running job more time, while no promise moves.", actions.extend, wire.ExtendRequest
    ),
    Route(
        "POST",
        f"{API}/jobs/{{id}}/progress",
        "report",
        "job",
        "Say how far a job is; for the job itself.",
        reports.progress,
        body=wire.ProgressRequest,
        by_job=True,
    ),
    _look("jobs/{id}/logs", "files", LOG, files.log, bytes, query=(OFFSET, ATTEMPT, WAIT)),
    _look(
        "jobs/{id}/artifacts",
        "files",
        "The files that a job left.",
        files.list_artifacts,
        replies.ArtifactsReply,
    ),
    _look("jobs/{id}/artifacts/{name}", "files", "One of them.", files.artifact, bytes),
    Route(
        "HEAD",
        f"{API}/snapshots/{{sha256}}",
        "read",
        "snapshot",
        "Whether the user sent it.",
        files.has_snapshot,
        None,
    ),
    Route(
        "PUT",
        f"{API}/snapshots/{{sha256}}",
        "submit",
        "snapshot",
        SNAPSHOT,
        files.receive_snapshot,
        status=201,
        stream="upload",
    ),
    Route(
        "POST",
        f"{API}/leases",
        "submit",
        "lease",
        ACQUIRE,
        leases.acquire,
        replies.LeaseReply,
        body=wire.LeaseRequest,
        status=201,
    ),
    Route(
        "POST",
        f"{API}/activity",
        "submit",
        "lease",
        "Say what the kernels of a Jupyter server do.",
        leases.activity,
        body=wire.ActivityRequest,
    ),
    _look("leases", "lease", "The user's leases.", leases.list_leases, replies.LeasesReply),
    _look("leases/{id}", "lease", "One lease.", leases.show, replies.LeaseReply, query=(WAIT,)),
    Route(
        "DELETE",
        f"{API}/leases/{{id}}",
        "change",
        "lease",
        "Give a lease back.",
        leases.give_back,
        replies.LeaseReply,
    ),
    Route(
        "POST",
        f"{API}/spawns",
        "spawn",
        "lease",
        SPAWN,
        spawns.request,
        replies.SpawnReply,
        body=wire.SpawnRequest,
        status=201,
    ),
    Route(
        "GET",
        f"{API}/spawns/choices",
        "spawn",
        "lease",
        "What a user may choose for a server.",
        spawns.offered,
        replies.ChoicesReply,
        query=(USER, GROUPS),
    ),
    Route(
        "GET",
        f"{API}/spawns/{{id}}",
        "spawn",
        "lease",
        "A server's lease.",
        spawns.show,
        replies.SpawnReply,
        query=(WAIT,),
    ),
    Route(
        "DELETE",
        f"{API}/spawns/{{id}}",
        "spawn",
        "lease",
        "End a server, or its waiting.",
        spawns.give_back,
        replies.SpawnReply,
    ),
    _look("boosts", "grant", "Boosts that hold or will.", boosts.list_boosts, grant_replies.BoostsReply),
    _grant(
        "boosts",
        "grant",
        "Grant extra quota or budget.",
        boosts.grant,
        grant_replies.BoostReply,
        grant_wire.BoostRequest,
    ),
    _grant("boosts/{id}", "grant", "End a boost early.", boosts.end, grant_replies.BoostReply),
    _look(
        "reservations",
        "grant",
        "Reservations and maintenance that hold or will.",
        reservations.list_reservations,
        grant_replies.ReservationsReply,
    ),
    _grant(
        "reservations",
        "grant",
        "Set cards apart.",
        reservations.reserve,
        grant_replies.ReservationReply,
        grant_wire.ReservationRequest,
    ),
    _grant(
        "reservations/{id}",
        "grant",
        "End a reservation early.",
        reservations.end,
        grant_replies.ReservationReply,
    ),
    _look(
        "requests",
        "grant",
        "One's own requests and those one may decide.",
        requests.list_requests,
        grant_replies.GrantRequestsReply,
        query=(ALL,),
    ),
    _grant(
        "requests",
        "submit",
        "Ask for a boost, a reservation, more time or a higher budget.",
        requests.ask,
        grant_replies.GrantRequestReply,
        grant_wire.NewGrantRequest,
    ),
    _grant(
        "requests/{id}/approve",
        "grant",
        "Grant what was asked for.",
        requests.approve,
        grant_replies.GrantRequestReply,
        grant_wire.AnswerRequest,
    ),
    _grant(
        "requests/{id}/deny",
        "grant",
        "Deny what was asked for.",
        requests.deny,
        grant_replies.GrantRequestReply,
        grant_wire.AnswerRequest,
    ),
    _grant(
        "requests/{id}",
        "submit",
        "Take a request back.",
        requests.withdraw,
        grant_replies.GrantRequestReply,
    ),
    _grant(
        "nodes/{name}/drain",
        "administer",
        "Let a node take no new work.",
        nodes.drain,
        grant_replies.DrainReply,
        grant_wire.DrainRequest,
    ),
    _grant(
        "nodes/{name}/drain",
        "administer",
        "Let a node take work again.",
        nodes.undrain,
        grant_replies.DrainReply,
    ),
    Route(
        "GET",
        f"{API}/actions",
        "administer",
        "grant",
        "Who did what.",
        nodes.list_actions,
        grant_replies.ActionsReply,
        query=(LIMIT,),
    ),
    _look("events", "queue", EVENTS, admin.events, bytes, stream="events"),
    _look("policy", "policy", "The policy in force.", admin.policy, replies.PolicyReply),
    Route(
        "POST",
        f"{API}/policy",
        "administer",
        "policy",
        "Check a policy, or put it in force.",
        admin.change_policy,
        replies.PolicyCheckReply,
        body=wire.PolicyRequest,
    ),
    _look(
        "report",
        "pool",
        "What was used, by whom; of the last days, a week or a month.",
        past.report,
        report_replies.ReportReply,
        query=(DAYS, WEEK, MONTH, GROUP, BY_USER),
    ),
    _look(
        "history",
        "pool",
        "Who held what at a moment, under which policy.",
        past.history,
        report_replies.HistoryReply,
        query=(AT, GPU),
    ),
    Route(
        "POST",
        f"{API}/shutdown",
        "administer",
        "service",
        "Stop the service.",
        admin.shutdown,
        body=wire.ShutdownRequest,
    ),
    _look("openapi.json", "service", "This document.", admin.openapi, dict),
    Route(
        "GET",
        f"{PREFIX}/health",
        "read",
        "service",
        "Whether the service works.",
        admin.health,
        replies.HealthReply,
        by_anybody=True,
    ),
    Route("GET", f"{PREFIX}/metrics", "read", "service", "Numbers for Prometheus.", admin.metrics, bytes),
)
