"""Leases for interactive work.

Owns: asking for a lease, waiting for it, giving it back. Never: whether there is room.
"""

from __future__ import annotations

import asyncio

from jupyter_gpupool.engines.local.proctree import starttime
from jupyter_gpupool.ledger.records import SessionRecord, SessionState
from jupyter_gpupool.service.activity import Kernel
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.errors import ApiError, conflict, invalid
from jupyter_gpupool.service.handlers.jobs import PLAN_PATIENCE_S, admit, rules_of
from jupyter_gpupool.service.replies import DoneReply, LeaseReply, LeasesReply
from jupyter_gpupool.service.sessions import owner_of
from jupyter_gpupool.service.submission import new_session
from jupyter_gpupool.service.wire import ActivityRequest, LeaseRequest

LOOK_S = 0.05


async def acquire(call: Call[LeaseRequest]) -> tuple[int, LeaseReply]:
    """Give a lease now, or queue for it."""
    service, who = call.service, call.who
    pid = call.body.pid or who.pid
    if pid is None or who.uid is None:
        raise invalid(
            "A lease is held by a process of yours on the pool's machine, and this comes from elsewhere.",
            "Ask from a notebook or a terminal there, or submit a job.",
        )
    started = starttime(pid)
    if started is None or owner_of(pid) != who.uid:
        raise invalid(f"The process {pid} that should hold the lease is not one of yours.")
    rules = rules_of(service, who)
    new = new_session(call.body, rules, pid, started)
    admit(service, new, rules)
    session = service.sessions.add(new)
    if session.state is SessionState.HELD:
        return 201, service.views.lease(session, who)
    service.controller.hurry()
    verdict = await service.controller.forecast.wait(session.id, PLAN_PATIENCE_S)
    session = service.ledger.sessions[session.id]
    reply = service.views.lease(session, who, verdict)
    if session.state is SessionState.WAITING and not call.body.wait:
        service.sessions.end(session, "There was no room, and it did not want to wait.")
        waiting = reply["waiting"]
        assert waiting is not None
        raise ApiError(
            409,
            "no_room",
            waiting["message"],
            retry_at=waiting["expected_start"],
            hint="Ask for less, or wait for it.",
        )
    return 201 if session.state is SessionState.HELD else 202, reply


async def list_leases(call: Call[None]) -> LeasesReply:
    """List the user's leases that are not over."""
    own = [
        session
        for session in call.service.ledger.sessions.values()
        if session.owner == call.who.user and session.state is not SessionState.ENDED
    ]
    return {"leases": [_lease(call, session) for session in own]}


async def show(call: Call[None]) -> LeaseReply:
    """Show one lease, when asked so after it has been granted or ended."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + call.query["wait"]
    while call.session().state is SessionState.WAITING and loop.time() < deadline:
        await asyncio.sleep(LOOK_S)
    return _lease(call, call.session())


async def give_back(call: Call[None]) -> LeaseReply:
    """End a lease."""
    session = call.session()
    if session.state.live:
        await call.service.end_session(session, f"Given back by {call.who.user}.")
    elif session.state is SessionState.RELEASING:
        raise conflict(f"Lease {session.id} is being given back already.")
    return _lease(call, call.service.ledger.sessions[session.id])


def _lease(call: Call[None], session: SessionRecord) -> LeaseReply:
    verdict = call.service.controller.forecast.of(session.id)
    return call.service.views.lease(session, call.who, verdict)


async def activity(call: Call[ActivityRequest]) -> DoneReply:
    """Take a Jupyter server's word on what its kernels do."""
    service, body = call.service, call.body
    kernels = tuple(Kernel(kernel.pid, kernel.busy) for kernel in body.kernels)
    service.activity.report(call.who.user, body.server, kernels, service.now)
    return {"ok": True}
