"""What the handlers of grants share.

Owns: what a grant is judged against, as of one request, and the note of who did what. Never: a rule.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpupool.ledger.grant_records import ActionRecord
from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.service import reserving
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.granting import Desk


def desk_of(call: Call[Any]) -> Desk:
    """Return what a grant is judged against now."""
    service = call.service
    service.controller.refresh_policy()
    return Desk(call.who, service.policy, service.ledger, service.controller.frame, service.now)


def ends_of(call: Call[Any]) -> reserving.Ends:
    """Return when leases are expected to end."""
    now = call.service.now
    return Ends(call.service.controller.snapshot(now, waiting=()), now).of


def did(call: Call[Any], action: str, text: str) -> ActionRecord:
    """Return the note of who did what."""
    return ActionRecord(call.service.now, call.who.user, action, text)


def changed(call: Call[Any]) -> None:
    """Plan by what was granted, and tell those who listen."""
    call.service.controller.granted()
    call.service.news.grants()
