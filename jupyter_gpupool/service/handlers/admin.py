"""The policy, and the service itself.

Owns: checking, applying and comparing policies as replies; health. Never: what a policy
means.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpupool._version import __version__
from jupyter_gpupool.policy.show import diff
from jupyter_gpupool.scheduler.model import Seconds, Snapshot
from jupyter_gpupool.service import metrics as numbers
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Bytes, Call
from jupyter_gpupool.service.comparing import moved_promises, newly_over
from jupyter_gpupool.service.handlers.desk import did
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.replies import (
    DoneReply,
    HealthReply,
    PolicyCheckReply,
    PolicyReply,
)
from jupyter_gpupool.service.scopes import permits
from jupyter_gpupool.service.visibility import public, without_notify
from jupyter_gpupool.service.wire import PolicyRequest, ShutdownRequest

HISTORY = 20


async def policy(call: Call[None]) -> PolicyReply:
    """Return the policy in force, what is wrong with its file, and what was in force before."""
    service, admin = call.service, call.who.admin
    service.controller.refresh_policy()
    store = service.policies
    past = store.past()[:HISTORY]

    def shown(text: str) -> str:
        return text if admin else without_notify(text)

    return {
        "text": shown(store.text),
        "source": str(store.file) if store.file.exists() else "built-in",
        "error": store.error if admin else public(store.error),
        "inactive": store.policy.inactive(),
        "warnings": store.warnings(store.policy),
        "history": [
            {"name": one.name, "since": iso(one.since), "text": shown(store.past_text(one.name) or "")}
            for one in past
        ],
    }


async def change_policy(call: Call[PolicyRequest]) -> PolicyCheckReply:
    """Check a policy and say what it would change; put it in force if asked."""
    service, body = call.service, call.body
    service.controller.refresh_policy()
    new = service.policies.check(body.text, body.source)
    now = service.now
    snapshots = service.controller.snapshot(now), service.controller.snapshot_under(new, now)
    over, moved = await aside(_consequences, *snapshots, now)
    reply: PolicyCheckReply = {
        "applied": body.apply,
        "diff": diff(service.policy, new),
        "over_quota": over,
        "promises": moved,
        "inactive": new.inactive(),
        "warnings": service.policies.warnings(new),
    }
    if body.apply:
        service.policies.write(body.text)
        service.controller.refresh_policy()
        text = "; ".join(reply["diff"]) or "It said the same already."
        service.ledger.grants.record(did(call, "apply policy", text))
    return reply


def _consequences(old: Snapshot, new: Snapshot, now: Seconds) -> tuple[list[str], list[str]]:
    return newly_over(old, new, now), moved_promises(old, new, now)


async def shutdown(call: Call[ShutdownRequest]) -> DoneReply:
    """Let the service end, after its reply."""
    call.service.stop(keep_jobs=call.body.keep_jobs)
    return {"ok": True}


async def health(call: Call[None]) -> HealthReply:
    """Say whether the service works, and to who may read here what troubles it."""
    service = call.service
    told = (service.controller.trouble, public(service.policies.error), service.notices.trouble)
    troubles = [text for text in told if text]
    troubles += [because for because in service.controller.health.values() if because]
    reply: HealthReply = {"status": "degraded" if troubles else "ok", "version": __version__}
    if permits(call.who.scopes, "read"):
        reply["troubles"] = troubles
    return reply


async def metrics(call: Call[None]) -> Bytes:
    """Return numbers for Prometheus."""
    return Bytes(numbers.scrape(call.service), numbers.CONTENT_TYPE)


async def openapi(call: Call[None]) -> dict[str, Any]:
    """Return the description of this interface."""
    return await aside(call.service.describe)


async def events(call: Call[None]) -> None:
    """Do nothing: the application sends the stream."""
