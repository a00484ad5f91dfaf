"""The pool's REST interface as Python methods; replies are the service's JSON as dicts.

Owns: paths, methods, the idempotency key of a submit. Never: what a reply looks like on a screen, how a
request is composed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, NamedTuple
from urllib.parse import quote, urlencode

from jupyter_gpupool.client import following
from jupyter_gpupool.client.errors import PoolError, ServiceDown
from jupyter_gpupool.client.sse import Event, parse_events
from jupyter_gpupool.client.tarball import Snapshot
from jupyter_gpupool.client.tasks import JobName
from jupyter_gpupool.client.transport import Connection, Reply, Stream

Json = dict[str, Any]

UPLOAD_TIMEOUT = 600.0  # seconds


class LogPart(NamedTuple):
    """A piece of a log, the offset where the next one starts, and whether nothing can follow."""

    data: bytes
    offset: int
    ended: bool


class Client:
    """One pool, seen by one user. Every method may raise `PoolError`.

    Parameters
    ----------
    connection : Connection
        See `jupyter_gpupool.client.find.find_pool`.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    # -- looking ---------------------------------------------------------------------------------

    def whoami(self) -> Json:
        """Return the user, the groups, and which pool this is."""
        return self._get("whoami")

    def quota(self) -> Json:
        """Return what the user and the groups may use and do use."""
        return self._get("quota")

    def pool(self) -> Json:
        """Return nodes, cards, partitions, and who is on them."""
        return self._get("pool")

    def queue(self) -> Json:
        """Return what waits, in rank order, and what runs."""
        return self._get("queue")

    def jobs(
        self, *, state: str | None = None, limit: int | None = None, array: int | None = None
    ) -> list[Json]:
        """Return the user's jobs, newest first and each array as one; or the tasks of one `array`."""
        found: list[Json] = self._get("jobs", state=state, limit=limit, array=array)["jobs"]
        return found

    def job(self, job: JobName) -> Json:
        """Return one job."""
        return self._get(_of(job))

    def report(
        self,
        days: int = 7,
        *,
        week: str | None = None,
        month: str | None = None,
        group: str | None = None,
        user: str | None = None,
    ) -> Json:
        """Return what was used in the last days, or in a week or month that is named."""
        return self._get("report", days=days, week=week, month=month, group=group, user=user)

    def history(self, at: str | None = None, gpu: str | None = None) -> Json:
        """Return who held what at a moment, now by default, on all cards or one."""
        return self._get("history", at=at, gpu=gpu)

    def policy(self) -> Json:
        """Return the policy in force."""
        return self._get("policy")

    def set_policy(self, text: str, *, apply: bool, source: str) -> Json:
        """Check a policy, or with `apply` put it in force, and return what it changes.

        `source` names what was read, in messages.
        """
        return self._post("policy", {"text": text, "apply": apply, "source": source})

    # -- jobs ------------------------------------------------------------------------------------

    def upload(self, snapshot: Snapshot) -> None:
        """Send a snapshot unless the service has it."""
        path = f"snapshots/{snapshot.sha256}"
        if self.connection.request("HEAD", path).status == 200:
            return
        headers = {"Content-Type": "application/x-tar"}
        _checked(self.connection.request("PUT", path, snapshot.data, headers, timeout=UPLOAD_TIMEOUT))

    def submit(
        self, request: Mapping[str, Any], snapshot: Snapshot | None = None, *, key: str | None = None
    ) -> Json:
        """Submit a job and return it; sent again after a lost answer, it is still one job.

        Parameters
        ----------
        request : mapping
            See `jupyter_gpupool.client.request`.
        key : str, optional
            The idempotency key; a new one by default.
        """
        if snapshot is not None:
            self.upload(snapshot)
        return self._post("jobs", request, {"Idempotency-Key": key or uuid.uuid4().hex})

    def dry_run(self, request: Mapping[str, Any]) -> Json:
        """Ask where and when a job would start; nothing is submitted."""
        return self._post("jobs?dry_run=true", request, repeatable=True)

    def cancel(self, job: JobName) -> Json:
        """End a job; what runs is asked to stop first."""
        return self._post(_of(job, "cancel"), repeatable=True)

    def hold(self, job: JobName) -> Json:
        """Keep a queued job from starting."""
        return self._post(_of(job, "hold"), repeatable=True)

    def release(self, job: JobName) -> Json:
        """Let a held job start."""
        return self._post(_of(job, "release"), repeatable=True)

    def requeue(self, job: JobName) -> Json:
        """Stop a job and put it back into the queue."""
        return self._post(_of(job, "requeue"))

    def extend(self, job: JobName, time: str) -> Json:
        """Give a running job so much more time, such as ``2h``."""
        return self._post(_of(job, "extend"), {"time": time})

    def artifacts(self, job: JobName) -> list[Json]:
        """Return the files that a job left in its output folder."""
        found: list[Json] = self._get(_of(job, "artifacts"))["artifacts"]
        return found

    def artifact(self, job: JobName, name: str) -> bytes:
        """Return one file of a job's output folder."""
        path = _of(job, "artifacts", name)
        return _checked(self.connection.request("GET", path, timeout=UPLOAD_TIMEOUT)).body

    def logs(
        self, job: JobName, offset: int = 0, *, attempt: int | None = None, wait: int | None = None
    ) -> LogPart:
        """Return a job's output from `offset` (bytes; negative counts from the end).

        Parameters
        ----------
        attempt : int, optional
            Which run of the job; the latest by default.
        wait : int, optional
            Seconds to wait for output when there is none yet.
        """
        path = _with_query(_of(job, "logs"), offset=offset, attempt=attempt, wait=wait)
        reply = _checked(self.connection.request("GET", path, timeout=60.0 + (wait or 0)))
        after = int(reply.headers.get("x-gpupool-offset", offset + len(reply.body)))
        return LogPart(reply.body, after, reply.headers.get("x-gpupool-ended", "").lower() == "true")

    def follow_logs(self, job: JobName, offset: int = 0) -> Iterator[bytes]:
        """Yield a job's output as it comes, over all its further runs, until the job has ended."""
        return following.follow_logs(self, job, offset)

    # -- events ----------------------------------------------------------------------------------

    def open_events(self, last_id: str | None = None, *, timeout: float = following.SILENCE) -> Stream:
        """Open the service's stream of events; read it with `parse_events`.

        Parameters
        ----------
        last_id : str, optional
            The id of the last event seen; those after it come first.
        timeout : float
            Seconds of silence after which reading raises `OSError`.
        """
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        return self.connection.stream("events", headers, timeout=timeout)

    def events(self, last_id: str | None = None) -> Iterator[Event]:
        """Yield the service's events until it hangs up.

        Raises
        ------
        ServiceDown
            When the stream cannot be opened, breaks or falls silent.
        """
        with self.open_events(last_id) as stream:
            try:
                yield from parse_events(stream.lines())
            except OSError:
                raise ServiceDown("The stream of the pool's events broke.") from None

    def wait(
        self,
        jobs: Iterable[JobName],
        timeout: float | None = None,
        on_event: Callable[[Json], None] | None = None,
    ) -> list[Json]:
        """Wait until all `jobs` have ended and return them, in the order given.

        Parameters
        ----------
        timeout : float, optional
            Seconds.
        on_event : callable, optional
            Called with a job whenever it changed.

        Raises
        ------
        TimeoutError
            When `timeout` has passed first.
        """
        return following.wait(self, list(jobs), timeout, on_event)

    # -- leases ----------------------------------------------------------------------------------

    def acquire(self, request: Mapping[str, Any]) -> Json:
        """Ask for a lease of part of the pool for work that the caller runs."""
        return self._post("leases", request)

    def lease(self, lease: int) -> Json:
        """Return one lease."""
        return self._get(f"leases/{int(lease)}")

    def give_back(self, lease: int) -> None:
        """End a lease."""
        _checked(self.connection.request("DELETE", f"leases/{int(lease)}"))

    # -- what is granted -------------------------------------------------------------------------

    def granted(self, what: str, **query: Any) -> Json:
        """Return all ``boosts``, ``reservations``, ``requests`` or ``actions`` that the user may see."""
        return self._get(what, **query)

    def grant(self, what: str, body: Mapping[str, Any]) -> Json:
        """Make one of ``boosts``, ``reservations`` or ``requests``, or answer a request."""
        return self._post(quote(what), body)

    def end_grant(self, what: str, number: int) -> Json:
        """End a boost or reservation, or take a request back."""
        return _json(self.connection.request("DELETE", f"{what}/{int(number)}"))

    def drain(self, node: str, because: str) -> Json:
        """Let a node take no new work."""
        return self._post(_drain_of(node), {"because": because})

    def undrain(self, node: str) -> Json:
        """Let a node take work again."""
        return _json(self.connection.request("DELETE", _drain_of(node)))

    # -- the service -----------------------------------------------------------------------------

    def health(self) -> Json:
        """Return whether the service works, and what troubles it."""
        return self._get(f"{self.connection.address.base}/health")

    def shutdown(self, *, keep_jobs: bool) -> None:
        """Ask the service to end; with `keep_jobs` its jobs run on for the next one to adopt."""
        self._post("shutdown", {"keep_jobs": keep_jobs})

    # -- plumbing --------------------------------------------------------------------------------

    def _get(self, path: str, **query: Any) -> Json:
        return _json(self.connection.request("GET", _with_query(path, **query)))

    def _post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        repeatable: bool | None = None,
    ) -> Json:
        content = json.dumps(body or {}).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        return _json(self.connection.request("POST", path, content, sent, repeatable=repeatable))


def _drain_of(node: str) -> str:
    return f"nodes/{quote(node, safe='')}/drain"


def _of(job: JobName, *parts: str) -> str:
    """Return the path of a job, or of something that belongs to it."""
    return "/".join(["jobs", *(quote(str(part)) for part in (job, *parts))])


def _with_query(path: str, **query: Any) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _checked(reply: Reply) -> Reply:
    if reply.status >= 400:
        raise PoolError.from_reply(reply.status, reply.body)
    return reply


def _json(reply: Reply) -> Json:
    content = _checked(reply).body
    if not content:
        return {}
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PoolError("unexpected_reply", "The pool's service answered with something that is no JSON.")
    return found
