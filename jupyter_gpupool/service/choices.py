"""What a user may choose for a server, and what would come of each choice.

Owns: asking the scheduler about servers that are not queued yet, and its answers as words. Never: a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jupyter_gpupool.ledger.records import LeaseState, NewSession, SessionRecord
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy.membership import choose_group, groups_of
from jupyter_gpupool.policy.model import ROOT
from jupyter_gpupool.scheduler.admission import Prospect, Refusal, prospects
from jupyter_gpupool.scheduler.model import Lease, Reason, Snapshot, Verdict
from jupyter_gpupool.scheduler.quota import GPU
from jupyter_gpupool.scheduler.reasons import explain
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.errors import ApiError
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.replies import ChoicesReply, FreeReply, GroupChoicesReply, SliceReply
from jupyter_gpupool.service.slices import Offer, allowed_to, label, offers, server_of
from jupyter_gpupool.service.submission import NO_GROUP, Rules, work_of

FIRST_ID = 2**62
"""Numbers of what is only asked about."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The pool as somebody sees it who asks for a server."""

    snapshot: Snapshot
    now: int

    def prospects(self, news: Sequence[NewSession]) -> list[Prospect]:
        """Return what would come of each request, if it alone were made."""
        works = [work_of(new, self.now, FIRST_ID + number) for number, new in enumerate(news)]
        return prospects(self.snapshot, self.now, works)

    def sentences(self, verdict: Verdict, new: NewSession) -> tuple[str, str]:
        """Say why a request would wait, and what would clear it."""
        work = work_of(new, self.now, verdict.work)
        found = explain(verdict, replace(self.snapshot, waiting=(work,)))
        return found.message, found.clears


def moment(controller: Controller, user: str, instead: SessionRecord | None = None) -> Moment:
    """Return what `user` finds: what is the user's own and just being given back counts as free.

    Parameters
    ----------
    instead
        A session of the user that would end before.
    """
    now, ledger = controller.now, controller.ledger
    waiting = tuple(
        work
        for work in ledger.waiting()
        if work.kind == "session" and (instead is None or work.id != instead.id)
    )
    snapshot = controller.snapshot(now, waiting)
    leases = tuple(lease for lease in snapshot.leases if not _goes(lease, ledger, user, instead))
    return Moment(replace(snapshot, leases=leases), now)


def refuse_hopeless(found: Prospect, at: Moment, new: NewSession, *, wait: bool) -> None:
    """Refuse a server that waiting for others would not help, or that does not want to wait.

    Raises
    ------
    ApiError
        422: it could never start; 409: the user's own limit is reached, or there is no room now.
    """
    if found.refusal:
        raise _never(found.refusal)
    if found.verdict is None:
        return
    message, clears = at.sentences(found.verdict, new)
    if found.verdict.reason is Reason.USER_LIMIT:
        facts = found.verdict.facts
        unit = GPU if facts["what"] == "gpus" else str(facts["what"])
        used, limit = facts["used"], facts["limit"]
        raise ApiError(409, "user_limit", message, used, limit, unit, hint=clears)  # type: ignore[arg-type]
    if not wait:
        hint = "Wait for it, or take less."
        raise ApiError(409, "no_room", message, retry_at=iso(found.verdict.expected_start), hint=hint)


def choices(at: Moment, rules: Rules, *, simulated: bool) -> ChoicesReply:
    """Return what a user may choose, group by group. Pure, so that it may run beside the loop."""
    who = rules.who
    groups: list[str | None] = [*groups_of(rules.policy, who.user, who.hub_groups)] or [None]
    there = offers(rules)
    cells = [
        (group, offer, server_of(offer, group, rules))
        for group in groups
        for offer in allowed_to(group, there)
    ]
    found = at.prospects([new for _, _, new in cells])
    slices: dict[str | None, list[SliceReply]] = {group: [] for group in groups}
    for (group, offer, new), prospect in zip(cells, found, strict=True):
        slices[group].append(_slice(at, offer, new, prospect))
    return {
        "user": who.user,
        "default_group": choose_group(rules.policy, who.user, None, who.hub_groups),
        "groups": [_group(at, rules, group, found) for group, found in slices.items()],
        "free": _free(at.snapshot, {offer.partition for offer in there}),
        "message": NO_GROUP if None in groups else None,
        "simulated": simulated,
    }


def _goes(lease: Lease, ledger: Ledger, user: str, instead: SessionRecord | None) -> bool:
    own = lease.kind == "session" and lease.user == user
    return (instead is not None and lease.work == instead.id) or (
        own and ledger.leases[lease.id].state is LeaseState.RELEASING
    )


def _never(found: Refusal) -> ApiError:
    return ApiError(422, found.code, found.message, found.used, found.limit, found.unit, hint=found.hint)


def _slice(at: Moment, offer: Offer, new: NewSession, found: Prospect) -> SliceReply:
    reply: SliceReply = {
        "slice": offer.name,
        "partition": offer.partition,
        "label": label(offer.cut, new.request),
        "gpu_milli": offer.gpu_milli,
        "state": "available",
        "message": None,
        "expected_start": None,
    }
    if found.refusal:
        reply |= {"state": "refused", "message": found.refusal.message}
    elif found.verdict:
        own = found.verdict.reason is Reason.USER_LIMIT
        reply |= {
            "state": "refused" if own else "waits",
            "message": at.sentences(found.verdict, new)[0],
            "expected_start": None if own else iso(found.verdict.expected_start),
        }
    return reply


def _group(at: Moment, rules: Rules, name: str | None, slices: list[SliceReply]) -> GroupChoicesReply:
    counted = name or ROOT
    limits = rules.limits(counted)
    there = [lease for lease in at.snapshot.leases if lease.group == counted]
    own = [lease for lease in there if lease.user == rules.who.user]
    quota = rules.frame.groups[counted].quota.quota if counted in rules.frame.groups else {}
    return {
        "name": name,
        "used_milli": _milli(there),
        "limit_milli": quota.get(GPU, 0),
        "user_used_milli": _milli(own),
        "user_limit_milli": limits.gpu_milli,
        "user_sessions": sum(1 for lease in own if lease.kind == "session"),
        "user_sessions_limit": limits.sessions,
        "slices": slices,
    }


def _free(snapshot: Snapshot, offered: set[str | None]) -> list[FreeReply]:
    """Return how much is free of each partition in which something is offered."""
    taken: Counter[str] = Counter()
    for lease in snapshot.leases:
        for share in lease.placement.gpus:
            taken[share.uuid] += share.mib
    names = [
        name
        for name, found in snapshot.partitions.items()
        if "session" in found.kinds and (None in offered or name in offered)
    ]
    replies: list[FreeReply] = []
    for name in names:
        cards = [gpu for gpu in snapshot.gpus if gpu.partition == name]
        usable = [gpu for gpu in cards if gpu.available]
        replies.append(
            {
                "partition": name,
                "gpus": len(cards),
                "idle_gpus": sum(1 for gpu in usable if not taken[gpu.uuid]),
                "memory_mib": sum(gpu.memory_mib for gpu in cards),
                "free_mib": sum(max(0, gpu.memory_mib - taken[gpu.uuid]) for gpu in usable),
            }
        )
    return replies


def _milli(leases: Sequence[Lease]) -> int:
    return sum(lease.placement.gpu_milli for lease in leases)
