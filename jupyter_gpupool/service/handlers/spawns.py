"""Servers of a Hub: a lease before each starts.

Owns: asking for a server's lease, waiting for it, giving it back, and what there is to choose from; for the
Hub's spawner, in its users' names. Never: whether there is room.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from jupyter_gpupool._version import __version__, goes_with
from jupyter_gpupool.ledger.records import NewSession, SessionRecord, SessionState
from jupyter_gpupool.scheduler.model import Verdict
from jupyter_gpupool.service.accounts import account_for
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.choices import choices, moment, refuse_hopeless
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import ApiError, invalid, not_found
from jupyter_gpupool.service.handlers.jobs import PLAN_PATIENCE_S, rules_of
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.replies import ChoicesReply, SpawnReply, WorkReply
from jupyter_gpupool.service.servers import GRACE_S, key_of
from jupyter_gpupool.service.slices import new_server
from jupyter_gpupool.service.wire import SpawnRequest

LOOK_S = 0.1


async def request(call: Call[SpawnRequest]) -> tuple[int, SpawnReply]:
    """Give a server its lease now, or queue for it; the same request again gets what it has got already."""
    service, body = call.service, call.body
    _check_version(body.version)
    rules = rules_of(service, _as(call.who, body.user, body.groups))
    new = new_server(body, rules)
    await account_for(body.user, service.config, service.policy)
    async with service.servers.turn(f"{body.user}/{body.server}"):
        session = await _queued(service, new, wait=body.wait)
    if session.state is SessionState.WAITING:
        service.controller.hurry()
        await service.controller.forecast.wait(session.id, PLAN_PATIENCE_S)
    reply = _reply(call, session)
    return 201 if reply["work"] else 202, reply


async def _queued(service: Service, new: NewSession, *, wait: bool) -> SessionRecord:
    """Return the server's session: the one there is, if nobody has made use of it, or a new one."""
    earlier = service.servers.present(new.server or "")
    held = earlier is not None and earlier.state is SessionState.HELD
    if earlier and (wait or held) and await service.servers.reusable(earlier, new):
        service.servers.asked(earlier)
        return earlier
    at = moment(service.controller, new.owner, instead=earlier)
    refuse_hopeless(at.prospects([new])[0], at, new, wait=wait)
    if earlier:
        await service.servers.end(earlier, "Its server was asked for anew.")
    return service.servers.add(new)


async def show(call: Call[None]) -> SpawnReply:
    """Show a server's lease; when asked so, after it has been granted, has moved up or has ended."""
    loop, forecast = asyncio.get_running_loop(), call.service.controller.forecast
    deadline = loop.time() + call.query["wait"]
    before = forecast.of(_session(call).id)
    while True:
        session = _session(call)
        call.service.servers.asked(session)
        waits = session.state is SessionState.WAITING and not _moved(before, forecast.of(session.id))
        if not waits or loop.time() >= deadline:
            return _reply(call, session)
        await asyncio.sleep(LOOK_S)


def _moved(before: Verdict | None, now: Verdict | None) -> bool:
    """Whether a plan says something new of the place in the queue."""
    return now is not None and (before is None or now.position != before.position)


async def give_back(call: Call[None]) -> SpawnReply:
    """End a server, or its waiting; one that has ended already is no error."""
    await call.service.servers.end(_session(call), "Given back by the Hub.")
    return _reply(call, _session(call))


async def offered(call: Call[None]) -> ChoicesReply:
    """Say what a user may choose for a server, and what would come of each choice."""
    service, user = call.service, call.query["user"]
    if not user:
        raise invalid("user is missing: whose choices are wanted?")
    groups = [name for name in (call.query["groups"] or "").split(",") if name]
    rules = rules_of(service, _as(call.who, user, groups))
    at = moment(service.controller, user)
    return await aside(lambda: choices(at, rules, simulated=service.pool.simulated))


def _check_version(version: str) -> None:
    """Refuse a Hub with another version of this package, whose words might mean something else here."""
    if not goes_with(version):
        raise ApiError(
            409,
            "other_version",
            f"The Hub has jupyter-gpupool {version[:20]}, and this service is of version {__version__}.",
            hint="An administrator restarts the one that is older.",
        )


def _as(spawner: Identity, user: str, groups: list[str]) -> Identity:
    """Return the user for whom the Hub's spawner asks."""
    return replace(spawner, user=user, hub_groups=tuple(groups))


def _session(call: Call[None]) -> SessionRecord:
    session = call.any_session()
    if session.server is None:
        raise not_found(f"server with lease {session.id}")
    return session


def _reply(call: Call[SpawnRequest] | Call[None], session: SessionRecord) -> SpawnReply:
    service = call.service
    session = service.ledger.sessions[session.id]
    verdict = service.controller.forecast.of(session.id)
    lease = service.views.lease(session, replace(call.who, user=session.owner), verdict)
    return {"lease": lease, "work": _work(service, session)}


def _work(service: Service, session: SessionRecord) -> WorkReply | None:
    """Return what an engine needs; a server runs no longer than its lease, which began a moment ago."""
    if session.state is not SessionState.HELD or session.lease is None:
        return None
    limit = max(1, service.ledger.leases[session.lease].end - service.now)
    return {
        "key": key_of(session),
        "job": session.id,
        "attempt": 1,
        "folder": str(service.config.jobs / str(session.id)),
        "limit_s": limit,
        "grace_s": min(GRACE_S, limit // 2),
        "cpus_milli": session.request.cpus_milli,
        "memory_mib": session.request.memory_mib,
        "user": session.owner if service.config.as_users(service.policy) else None,
    }
