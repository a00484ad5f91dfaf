"""Nodes: taken out of service for new work, and back; and who did what.

Owns: draining and undraining, and the list of actions. Never: what a drained node means to the scheduler.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.errors import conflict, nearest, not_found
from jupyter_gpupool.service.grant_replies import ActionsReply, DrainReply
from jupyter_gpupool.service.grant_views import drain_reply
from jupyter_gpupool.service.grant_wire import DrainRequest
from jupyter_gpupool.service.handlers.desk import changed, desk_of, did, ends_of
from jupyter_gpupool.service.moments import iso

BY_HAND = "It is taken out of service"


async def drain(call: Call[DrainRequest]) -> DrainReply:
    """Let a node take no new work; what runs there goes on."""
    desk, node = desk_of(call), _node(call)
    because = call.body.because.strip() or f"{BY_HAND} by {call.who.user}."
    record = desk.ledger.grants.drain(
        node, because, did(call, "drain", f"{node} takes no new work. {because}")
    )
    changed(call)
    return drain_reply(node, record, desk, ends_of(call))


async def undrain(call: Call[None]) -> DrainReply:
    """Let a node take work again."""
    desk, node = desk_of(call), _node(call)
    if node not in desk.ledger.grants.drains:
        raise conflict(f"{node} is not drained: it takes new work.")
    desk.ledger.grants.undrain(node, did(call, "undrain", f"{node} takes work again."))
    changed(call)
    return drain_reply(node, None, desk, ends_of(call))


async def list_actions(call: Call[None]) -> ActionsReply:
    """Say who did what, newest first."""
    found = call.service.ledger.grants.actions(call.query["limit"])
    return {
        "actions": [
            {"at": iso(one.at), "by": one.by, "action": one.action, "text": one.text} for one in found
        ]
    }


def _node(call: Call[Any]) -> str:
    name = call.path["name"]
    known = [node.name for node in call.service.pool.nodes()]
    if name not in known:
        guess = nearest(name, known)
        raise not_found(
            f"node {name}", f"Did you mean {guess}?" if guess else f"There is {', '.join(known)}."
        )
    return name
