"""What groups have spent of their budgets.

Owns: the sums of what free leases have cost in the periods under way, kept ready between passes, and with
them the scheduler's `Budget` of each group. What a lease has cost is a row of its own: neither retention nor
another policy takes anything away. Never: a clock, or what happens when a budget is used up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from jupyter_gpupool.ledger.grant_records import BoostRecord, ChargeRecord
from jupyter_gpupool.ledger.records import LeaseRecord
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.policy.periods import Period, PeriodKind, period
from jupyter_gpupool.scheduler.model import Budget

GPU_HOUR = 3_600_000
"""Milli-GPU seconds."""
AHEAD_S = 70 * 86400
"""How far ahead ends of periods are known; every job is shorter."""


def charge_of(lease: LeaseRecord) -> ChargeRecord | None:
    """Return what a free lease has cost; None if that is nothing."""
    rate = lease.placement.gpu_milli * lease.charge_milli
    if not rate or lease.freed is None or lease.freed <= lease.start:
        return None
    return ChargeRecord(lease.id, lease.group, lease.start, lease.freed, rate)


class Budgets:
    """The budgets of all groups, at any moment.

    Parameters
    ----------
    charged_since
        Sums from disk what free leases have cost each group after a moment, in micro-GPU seconds.
    """

    def __init__(self, charged_since: Callable[[int], dict[str, int]]) -> None:
        self._charged_since = charged_since
        self._charged: dict[int, Counter[str]] = {}  # by the start of a period
        self._periods: dict[tuple[PeriodKind, str], Period] = {}

    def follow(self, charge: ChargeRecord) -> None:
        """Count a lease that has become free."""
        for since, charged in self._charged.items():
            charged[charge.group] += charge.rate * max(0, charge.end - max(charge.start, since))

    def of(
        self, policy: Policy, now: int, live: Iterable[LeaseRecord], boosts: Iterable[BoostRecord]
    ) -> Mapping[str, Budget]:
        """Return the budget of each group that has one; what runs counts until `now`."""
        capped = {name: group.budget for name, group in policy.groups.items() if group.budget is not None}
        if not capped:
            return {}
        leases = list(live)
        periods = {budget.period: self._period(budget.period, policy, now) for budget in capped.values()}
        starts = {found.start for found in periods.values()}
        self._charged = {since: found for since, found in self._charged.items() if since in starts}
        spent = {since: self._spent(since, policy, now, leases) for since in starts}
        extra = list(boosts)
        return {
            name: Budget(
                capacity=max(
                    0,
                    GPU_HOUR * budget.gpu_hours + _granted(name, policy, periods[budget.period], extra, now),
                ),
                spent=spent[periods[budget.period].start][name] // 1000,
                ends=periods[budget.period].ends,
            )
            for name, budget in capped.items()
        }

    def _period(self, kind: PeriodKind, policy: Policy, now: int) -> Period:
        known = self._periods.get((kind, policy.timezone))
        if known is None or not known.start <= now < known.ends[0]:
            known = period(kind, policy.zone, now, now + AHEAD_S)
            self._periods[kind, policy.timezone] = known
        return known

    def _spent(self, since: int, policy: Policy, now: int, leases: list[LeaseRecord]) -> Counter[str]:
        """Return what each group with all below it has cost since then, in micro-GPU seconds."""
        if since not in self._charged:
            self._charged[since] = Counter(self._charged_since(since))
        own = self._charged[since].copy()
        for lease in leases:
            rate = lease.placement.gpu_milli * lease.charge_milli
            own[lease.group] += rate * max(0, now - max(lease.start, since))
        total: Counter[str] = Counter()
        for group, micro in own.items():
            for name in (group, *policy.above(group)):
                total[name] += micro
        return total


def _granted(group: str, policy: Policy, within: Period, boosts: Iterable[BoostRecord], now: int) -> int:
    """Return what boosts begun in this period add to a group's budget now, less what it gives others.

    What it gives to a group below counts in its own budget anyway, when it is used.
    """
    begun = [
        boost for boost in boosts if boost.ended is None and within.start <= boost.start <= now < boost.end
    ]
    got = sum(boost.budget for boost in begun if boost.group == group)
    given = (boost for boost in begun if boost.giver == group and group not in policy.above(boost.group))
    return got - sum(boost.budget for boost in given)
