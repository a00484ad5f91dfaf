"""The report of a period, added up from its days.

Owns: what each figure of it means. Pure. Never: who may see it, how it looks.

Allocated is what leases held; measured is what devices told, and null where none did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

from jupyter_gpupool.ledger.records import CardRecord
from jupyter_gpupool.ledger.use import CardUse, DayUse, Key, Use
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Budget
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.report_replies import (
    BudgetUseReply,
    CardsReply,
    CardUseReply,
    DayReply,
    GroupUseReply,
    TotalReply,
    UsedReply,
    UseReply,
)

GPU_HOUR = 3_600_000  # milli-GPU seconds
DAY_S = 86400
OUTCOMES = ("completed", "failed", "cancelled", "timed_out")

Name = TypeVar("Name", bound=Hashable)


def narrowed(days: Iterable[DayUse], counts: Callable[[str, str], bool]) -> list[DayUse]:
    """Return the days with the use of those users in groups only that count."""
    return [
        DayUse(
            day.start,
            day.end,
            {key: use for key, use in day.uses.items() if counts(key[0], key[1])},
            day.cards,
        )
        for day in days
    ]


def use_rows(days: Iterable[DayUse], shown: Callable[[str, str], bool]) -> list[UseReply]:
    """Return a row for each user of each group; those not `shown` are one row of their group."""
    by_user = _grouped(days, lambda key: (key[0], key[1] if shown(key[0], key[1]) else ""))
    return [
        {"group": group, "user": user or None, **used(found)}
        for (group, user), found in sorted(by_user.items())
    ]


def group_rows(
    days: Sequence[DayUse], policy: Policy, budgets: Mapping[str, Budget], until: int, groups: Collection[str]
) -> list[GroupUseReply]:
    """Return a row for each of the groups, with all that is below it."""
    length = sum(min(day.end, until) - day.start for day in days)
    rows: list[GroupUseReply] = []
    for name in groups:
        family = {name} | {other for other in policy.groups if name in policy.above(other)}
        found = [pair for day in days for pair in day.uses.items() if pair[0][0] in family]
        owed = policy.groups[name].quota.amounts().get("gpu_milli") if name in policy.groups else None
        rows.append(
            {
                "group": name,
                "quota_gpu_hours": None if owed is None else _hours(owed * length),
                "budget": _budget(budgets[name]) if name in budgets else None,
                **used(found),
            }
        )
    return rows


def day_rows(
    days: Iterable[DayUse], cards: Mapping[str, CardRecord], zone: ZoneInfo, until: int
) -> list[DayReply]:
    """Return a row for each day."""
    return [
        {
            "date": datetime.fromtimestamp(day.start, zone).date().isoformat(),
            **used(day.uses.items()),
            **_cards([day], cards, until),
        }
        for day in days
    ]


def card_rows(days: Sequence[DayUse], cards: Mapping[str, CardRecord], until: int) -> list[CardUseReply]:
    """Return a row for each card of the pool, and each that was one."""
    seen = {uuid: cards.get(uuid) for day in days for uuid in day.cards} | dict(cards)
    rows: list[CardUseReply] = [
        {
            "uuid": uuid,
            "node": card.node if card else None,
            "index": card.index if card else None,
            **_cards(days, {uuid: card} if card else {}, until, only=uuid),
        }
        for uuid, card in seen.items()
    ]
    return sorted(rows, key=lambda row: (row["node"] or "~", row["index"] or 0, row["uuid"]))


def total(days: Sequence[DayUse], cards: Mapping[str, CardRecord], until: int) -> TotalReply:
    """Return the whole period's figures."""
    found = [pair for day in days for pair in day.uses.items()]
    return {**used(found), **_cards(days, cards, until)}


def gpu_hours(days: Iterable[DayUse]) -> float:
    """Return what all leases held."""
    return _hours(sum(use.gpu_milli_s for day in days for use in day.uses.values()))


def capacity_hours(days: Iterable[DayUse], cards: int, until: int) -> float:
    """Return what so many cards could have given, as far as the days are over."""
    return round(cards * sum(min(day.end, until) - day.start for day in days) / 3600, 3)


def used(found: Iterable[tuple[Key, Use]]) -> UsedReply:
    """Add up the figures of any number of users, groups and days."""
    jobs, sessions = Use(), Use()
    for (_, _, kind), use in found:
        if kind == "job":
            jobs += use
        else:
            sessions += use
    both = jobs + sessions
    return {
        "gpu_hours": _hours(both.gpu_milli_s),
        "charged_gpu_hours": _hours(both.charged_milli_s),
        "measured_gpu_hours": _hours(both.known_milli_s),
        "utilisation": _part(both.used_milli_s, both.known_milli_s),
        "submitted": jobs.submitted,
        "ended": {name: count for name in OUTCOMES if (count := getattr(jobs, name))},
        "wait_mean_s": round(jobs.wait_s / jobs.started) if jobs.started else None,
        "wait_p95_s": percentile(jobs.waits, 95),
        "session_wait_p95_s": percentile(sessions.waits, 95),
        "stops": both.stopped,
        "sessions": sessions.started,
        "idle_sessions": sessions.idled,
        "idle_hours": round(sessions.idle_s / 3600, 3),
    }


def percentile(counts: Mapping[int, int], percent: int) -> int | None:
    """Return the least value that so many percent of the values do not exceed; None without values."""
    wanted, seen = math.ceil(sum(counts.values()) * percent / 100), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return None


def _grouped(days: Iterable[DayUse], name: Callable[[Key], Name]) -> dict[Name, list[tuple[Key, Use]]]:
    found: dict[Name, list[tuple[Key, Use]]] = {}
    for day in days:
        for key, use in day.uses.items():
            found.setdefault(name(key), []).append((key, use))
    return found


def _cards(
    days: Sequence[DayUse], cards: Mapping[str, CardRecord], until: int, only: str | None = None
) -> CardsReply:
    """Return hours for a card and day, of all cards or of one."""
    whole = CardUse()
    held = 0.0
    for day in days:
        for uuid, use in day.cards.items():
            if only in (None, uuid):
                whole += use
                held += use.held_mib_s / cards[uuid].memory_mib if uuid in cards else 0.0
    count = 1 if only else len(cards)
    card_days = count * sum(min(day.end, until) - day.start for day in days) / DAY_S
    return {
        "touched_hours_per_card_day": round(whole.touched_s / 3600 / card_days, 3) if card_days else None,
        "held_hours_per_card_day": round(held / 3600 / card_days, 3) if card_days else None,
        "utilisation": _part(whole.used_milli_s, 1000 * whole.known_s),
    }


def _budget(budget: Budget) -> BudgetUseReply:
    return {
        "gpu_hours": _hours(budget.capacity),
        "spent_gpu_hours": _hours(budget.spent),
        "left_gpu_hours": _hours(max(0, budget.capacity - budget.spent)),
        "until": iso(budget.ends[0]) if budget.ends else None,
    }


def _hours(milli_s: int) -> float:
    return round(milli_s / GPU_HOUR, 3)


def _part(some: int, whole: int) -> float | None:
    return round(some / whole, 4) if whole else None
