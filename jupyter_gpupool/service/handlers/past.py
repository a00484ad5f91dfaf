"""What was: who used how much, and who held what.

Owns: what of it each asker may see. Sums are for everybody; a user's own numbers for that user, for the
managers of the group, and for who sees all; names as the policy's `visibility` says. Never: the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jupyter_gpupool.ledger.records import CardRecord, Job, JobState, LeaseRecord, SessionRecord
from jupyter_gpupool.ledger.use import DayUse
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Budget
from jupyter_gpupool.service import report as sums
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.call import Bytes, Call, as_json
from jupyter_gpupool.service.errors import ApiError, forbidden, nearest, not_found
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.past import Holding, holdings, named_card, policy_at
from jupyter_gpupool.service.periods import moment, period
from jupyter_gpupool.service.report_replies import (
    HeldCardReply,
    HeldShareReply,
    HistoryReply,
    HolderReply,
    ReportReply,
)
from jupyter_gpupool.service.visibility import manages, sees_names


async def report(call: Call[None]) -> Bytes:
    """Say what was used in a period: of the pool, or of one group or user."""
    policy, ledger, now = call.service.policy, call.service.ledger, call.service.now
    since, end = period(call.query, policy.zone, now)
    read = ledger.days.between(policy.zone, since, end, now)
    pool = _Pool(policy, dict(ledger.cards), ledger.grants.budgets(policy, now))
    return await aside(lambda: as_json(_report(call, pool, read(), since, min(end, now))))


@dataclass(frozen=True)
class _Pool:
    """What a report is about, as it is now."""

    policy: Policy
    cards: Mapping[str, CardRecord]
    budgets: Mapping[str, Budget]


def _report(call: Call[None], pool: _Pool, pool_days: list[DayUse], since: int, until: int) -> ReportReply:
    policy, cards, who = pool.policy, pool.cards, call.who
    group, user = call.query["group"], call.query["user"]
    if group is not None and group not in policy.groups and not _has(pool_days, group):
        raise _no_group(group, list(policy.groups))

    def shown(of: str, whose: str) -> bool:
        return whose == who.user or who.sees_all or manages(policy, who, of)

    def counts(of: str, whose: str) -> bool:
        inside = group is None or group == of or group in policy.above(of)
        return inside and (user is None or (user == whose and shown(of, whose)))

    if user is not None and not _may_ask(pool_days, user, shown, whole=who.sees_all or user == who.user):
        raise forbidden(f"What {user} used is for {user}, and for the managers of the group.")
    days = sums.narrowed(pool_days, counts)
    groups = [name for name in policy.groups if group in (None, name, *policy.above(name))]
    groups += sorted({key[0] for day in days for key in day.uses} - policy.groups.keys())
    return {
        "since": iso(since),
        "until": iso(until),
        "group": group,
        "user": user,
        "days": sums.day_rows(days, cards, policy.zone, until),
        "use": sums.use_rows(days, shown),
        "groups": sums.group_rows(days, policy, pool.budgets, until, groups),
        "cards": sums.card_rows(days, cards, until),
        "total": sums.total(days, cards, until),
        "gpu_hours": sums.gpu_hours(pool_days),
        "capacity_gpu_hours": sums.capacity_hours(pool_days, len(cards), until),
        "simulated": call.service.pool.simulated,
    }


def _has(days: list[DayUse], group: str) -> bool:
    return any(key[0] == group for day in days for key in day.uses)


def _may_ask(days: list[DayUse], user: str, shown: Callable[[str, str], bool], *, whole: bool) -> bool:
    """Whether some of a user's numbers are for who asks; of a user without any, they are if `whole`."""
    return whole or any(shown(key[0], user) for day in days for key in day.uses if key[1] == user)


def _no_group(name: str, known: list[str]) -> ApiError:
    guess = nearest(name, known)
    return not_found(f"group {name!r}", f"Did you mean {guess}?" if guess else f"Groups: {', '.join(known)}.")


async def history(call: Call[None]) -> HistoryReply:
    """Say who held what at a moment, and under which policy."""
    service, ledger, policy = call.service, call.service.ledger, call.service.policy
    now, wanted = service.now, call.query["gpu"]
    at = moment(call.query["at"], policy.zone, now) if call.query["at"] else now
    cards = _cards(ledger.cards, wanted)
    records = (ledger.leases.values(), ledger.jobs.values(), ledger.sessions.values())
    found, first = await aside(_held, *map(list, records), at)
    then = await aside(lambda: policy_at(service.policies.past(), at))
    on_cards: dict[str, list[Holding]] = {uuid: [] for uuid in cards}
    for one in found:
        for share in one.lease.placement.gpus:
            if share.uuid in on_cards:
                on_cards[share.uuid].append(one)
    partitions = {gpu.uuid: gpu.partition for gpu in service.controller.frame.gpus}
    return {
        "at": iso(at),
        "policy": {"name": then.name, "since": iso(then.since)} if then else None,
        "cards": [
            _on_card(call, uuid, ledger.cards.get(uuid), on_cards[uuid], partitions.get(uuid))
            for uuid in cards
        ],
        "without_card": [
            _holder(call, one) for one in found if not one.lease.placement.gpus and wanted is None
        ],
        "known_since": iso(max(now if first is None else first, now - policy.storage.retention)),
    }


def _held(
    leases: list[LeaseRecord], jobs: list[Job], sessions: list[SessionRecord], at: int
) -> tuple[list[Holding], int | None]:
    """Return what was held at a moment, and when the oldest work came that is known."""
    works: list[Job | SessionRecord] = [*jobs, *sessions]
    found = holdings(leases, {work.id: work for work in works}, at)
    return found, min((work.submitted for work in works), default=None)


def _cards(known: Mapping[str, CardRecord], wanted: str | None) -> list[str]:
    in_order = sorted(known, key=lambda uuid: (known[uuid].node, known[uuid].index))
    if wanted is None:
        return in_order
    found = named_card(wanted, known)
    if len(found) != 1:
        hint = "List them with: jupyter gpupool gpus" if not found else f"It may be {', '.join(found[:5])}."
        raise not_found(f"one card {wanted!r}" if found else f"card {wanted!r}", hint)
    return found


def _on_card(
    call: Call[None], uuid: str, card: CardRecord | None, found: list[Holding], partition: str | None
) -> HeldCardReply:
    """Say who held a card, in the partition where they did; else the one where it is now."""
    shares: list[HeldShareReply] = []
    for one in found:
        placement = one.lease.placement
        partition = placement.partition
        mib = next(share.mib for share in placement.gpus if share.uuid == uuid)
        milli = placement.gpu_milli // len(placement.gpus)
        shares.append({**_holder(call, one), "mib": mib, "gpu_milli": milli})
    return {
        "uuid": uuid,
        "node": card.node if card else None,
        "index": card.index if card else None,
        "partition": partition,
        "holders": shares,
    }


def _holder(call: Call[None], one: Holding) -> HolderReply:
    lease, work, who = one.lease, one.work, call.who
    named = work.owner == who.user or sees_names(call.service.policy, who)
    return {
        "kind": lease.kind,
        "id": work.id,
        "name": work.name if named else None,
        "user": work.owner if named else None,
        "group": lease.group,
        "priority": lease.priority,
        "attempt": lease.attempt,
        "since": iso(lease.requested),
        "until": iso(lease.freed),
        "ended_because": _why_ended(call, lease, one) if named and lease.freed is not None else None,
    }


def _why_ended(call: Call[None], lease: LeaseRecord, one: Holding) -> str:
    """Say how the hold ended; of a run that is not the last one, what was noted when it went back."""
    work = one.work
    if lease.cause:
        return f"It was asked to leave for others ({lease.cause.replace('_', '-')})."
    if work.lease == lease.id and (work.reason or work.state is JobState.COMPLETED):
        return work.reason or "completed"
    notes = [note.text for note in call.service.ledger.notes(work.id) if note.at <= (lease.freed or note.at)]
    return notes[-1] if notes else ""
