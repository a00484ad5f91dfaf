"""How much of the pool is whose.

Owns: what groups are owed, use, lend and borrow, and what of it is the asker's, as replies. Never: a
decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpupool.ledger.budgets import GPU_HOUR
from jupyter_gpupool.policy.membership import groups_of
from jupyter_gpupool.scheduler.model import Budget, Lease, Quota, Snapshot
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.grant_views import boost_reply, wire_names
from jupyter_gpupool.service.granting import Desk
from jupyter_gpupool.service.handlers.desk import desk_of
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.replies import (
    BudgetReply,
    GroupQuotaReply,
    LoanReply,
    QuotaReply,
    UserQuotaReply,
)
from jupyter_gpupool.service.standing import Loan, loans, over_quota
from jupyter_gpupool.service.submission import Rules


@dataclass(frozen=True)
class _Standing:
    """The pool at the moment of one request."""

    desk: Desk
    snapshot: Snapshot
    over: frozenset[str]
    loans: list[Loan]


async def quota(call: Call[None]) -> QuotaReply:
    """Say what the user's groups are owed and use, and what of it is the user's."""
    desk, who = desk_of(call), call.who
    snapshot = call.service.controller.snapshot(desk.now, waiting=())
    standing = _Standing(desk, snapshot, over_quota(snapshot, desk.now), loans(snapshot, desk.now))
    names = groups_of(desk.policy, who.user, who.hub_groups)
    return {"user": who.user, "groups": [_group(name, standing) for name in names]}


def _group(name: str, standing: _Standing) -> GroupQuotaReply:
    desk = standing.desk
    owed: Quota = desk.frame.groups[name].quota
    boosts = [one for one in desk.ledger.grants.boosts.values() if one.group == name and one.lasts(desk.now)]
    return {
        "name": name,
        "quota": wire_names(owed.quota),
        "limit": None if owed.limit is None else wire_names(owed.limit),
        "used": _use(lease for lease in standing.snapshot.leases if lease.group == name),
        "user": _user(name, standing),
        "over_since": _over_since(name, standing),
        "boosts": [boost_reply(boost, desk) for boost in boosts],
        "budget": _budget(name, standing.snapshot.budgets.get(name), desk),
        "lent": [_loan(loan, loan.borrower) for loan in standing.loans if loan.lender == name],
        "borrowed": [_loan(loan, loan.lender) for loan in standing.loans if loan.borrower == name],
    }


def _user(name: str, standing: _Standing) -> UserQuotaReply:
    desk = standing.desk
    who = desk.who.user
    own = [lease for lease in standing.snapshot.leases if (lease.group, lease.user) == (name, who)]
    waiting = [work for work in desk.ledger.waiting() if (work.group, work.user) == (name, who)]
    limits = Rules(desk.who, desk.policy, desk.frame).limits(name)
    own_limits = {
        "gpus_milli": limits.gpu_milli,
        "running_jobs": limits.running_jobs,
        "queued_jobs": limits.queued_jobs,
        "sessions": limits.sessions,
        "session_time": limits.session_time,
        "job_time": limits.job_time,
    }
    return {
        "limits": {resource: amount for resource, amount in own_limits.items() if amount is not None},
        "used": {
            "gpus_milli": sum(lease.placement.gpu_milli for lease in own),
            "running_jobs": sum(1 for lease in own if lease.kind == "job"),
            "queued_jobs": sum(1 for work in waiting if work.kind == "job"),
            "sessions": sum(1 for lease in own if lease.kind == "session"),
        },
    }


def _use(leases: Iterable[Lease]) -> dict[str, int]:
    used = {"gpus_milli": 0, "cpus_milli": 0, "memory_mib": 0}
    for lease in leases:
        used["gpus_milli"] += lease.placement.gpu_milli
        used["cpus_milli"] += lease.request.cpus_milli
        used["memory_mib"] += lease.request.memory_mib
    return used


def _over_since(name: str, standing: _Standing) -> str | None:
    """Return since when a group uses more than it is owed; the next plan writes a new beginning down."""
    if name not in standing.over:
        return None
    known = standing.desk.ledger.grants.over.get(name)
    return iso(known.since if known else standing.desk.now)


def _budget(name: str, budget: Budget | None, desk: Desk) -> BudgetReply | None:
    written = desk.policy.groups[name].budget
    if budget is None or written is None:
        return None
    return {
        "period": written.period,
        "gpu_hours": round(budget.capacity / GPU_HOUR, 3),
        "spent_gpu_hours": round(budget.spent / GPU_HOUR, 3),
        "until": iso(budget.ends[0]),
    }


def _loan(loan: Loan, other: str) -> LoanReply:
    return {
        "group": other,
        "gpus_milli": loan.gpu_milli,
        "until": iso(loan.until),
        "on_demand": loan.on_demand,
    }
