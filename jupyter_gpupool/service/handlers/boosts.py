"""Boosts: extra quota and budget with an end.

Owns: granting, listing and ending them. Never: who may (see `granting`).
"""

from __future__ import annotations

from jupyter_gpupool.ledger.grant_records import BoostRecord
from jupyter_gpupool.scheduler.quota import GPU
from jupyter_gpupool.scheduler.words import amount_text
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.errors import forbidden, not_found
from jupyter_gpupool.service.grant_replies import BoostReply, BoostsReply
from jupyter_gpupool.service.grant_views import boost_reply
from jupyter_gpupool.service.grant_wire import BoostRequest
from jupyter_gpupool.service.granting import Desk, new_boost, words
from jupyter_gpupool.service.handlers.desk import changed, desk_of, did
from jupyter_gpupool.service.visibility import is_manager


async def list_boosts(call: Call[None]) -> BoostsReply:
    """List the boosts that hold or will."""
    desk = desk_of(call)
    found = [boost for boost in desk.ledger.grants.boosts.values() if boost.lasts(desk.now)]
    return {"boosts": [boost_reply(boost, desk) for boost in sorted(found, key=lambda one: one.start)]}


async def grant(call: Call[BoostRequest]) -> BoostReply:
    """Grant a boost."""
    desk = desk_of(call)
    new = new_boost(call.body, desk)
    record = desk.ledger.grants.boost(new, did(call, "boost", f"{words(new, desk)}. {new.because}".strip()))
    changed(call)
    after = desk_of(call)
    return boost_reply(record, after, oversubscribed(after))


async def end(call: Call[None]) -> BoostReply:
    """End a boost early: an administrator any, a manager one that managers of the own group have granted."""
    desk = desk_of(call)
    boosts = desk.ledger.grants.boosts
    known = boosts.get(call.id)
    if known is None:
        raise not_found(f"boost {call.id}", "List them with: jupyter gpupool boost")
    if not desk.manages(known.giver or known.group) or not (desk.who.admin or _by_a_manager(known, desk)):
        raise forbidden(f"Boost {known.id} was granted by {known.by}; it is not yours to end.")
    record = desk.ledger.grants.end_boost(known.id, did(call, "end boost", f"Boost {known.id} ended."))
    changed(call)
    return boost_reply(record, desk)


def oversubscribed(desk: Desk) -> list[str]:
    """Say if the groups are now owed more cards than the pool has."""
    owed = sum(group.quota.quota.get(GPU, 0) for group in desk.frame.groups.values())
    total = 1000 * len(desk.frame.gpus)
    if owed <= total:
        return []
    owes, has = amount_text(GPU, owed), amount_text(GPU, total)
    return [f"The groups are now owed {owes} and the pool has {has}: work inside quota may have to wait."]


def _by_a_manager(known: BoostRecord, desk: Desk) -> bool:
    """Whether a manager may have granted it: out of a group's quota, or more of it to one user."""
    by_user = known.user is not None and is_manager(desk.policy, known.by, known.group)
    return known.giver is not None or by_user
