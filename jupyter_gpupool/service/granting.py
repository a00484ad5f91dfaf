"""Who may grant extra quota and budget, and how much of it.

Owns: the rules of boosts: an administrator grants out of the pool, a manager out of what the own group is
owed, each refusal with the numbers. Never: writing it down, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from jupyter_gpupool.frame import Frame
from jupyter_gpupool.ledger.budgets import GPU_HOUR
from jupyter_gpupool.ledger.grant_records import BoostRecord, NewBoost
from jupyter_gpupool.ledger.records import CardRecord
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy import units
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Gpu, Seconds
from jupyter_gpupool.scheduler.quota import CPUS, GPU, MEMORY, is_type
from jupyter_gpupool.scheduler.words import amount_text, decimal, time_text
from jupyter_gpupool.service.errors import ApiError, forbidden, invalid, nearest
from jupyter_gpupool.service.grant_wire import BoostRequest
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.terms import term
from jupyter_gpupool.service.visibility import manages


@dataclass(frozen=True)
class Desk:
    """What a grant is judged against: who grants, and what is owed and granted already."""

    who: Identity
    policy: Policy
    ledger: Ledger
    frame: Frame
    now: Seconds

    def manages(self, group: str) -> bool:
        """Whether who grants may dispose of what a group is owed."""
        return self.who.admin or manages(self.policy, self.who, group)

    def group(self, name: str) -> str:
        """Return the name of a group, if there is such a one.

        Raises
        ------
        ApiError
            There is none; the nearest name is given.
        """
        if name in self.policy.groups:
            return name
        guess = nearest(name, self.policy.groups)
        raise invalid(
            f'There is no group "{name}".', f"Did you mean {guess}?" if guess else "See: gpupool policy show"
        )

    def time(self, seconds: Seconds) -> str:
        """Write a moment in the site's time."""
        return time_text(seconds, self.now, self.policy.zone)

    def left(self, group: str, resource: str, start: Seconds, end: Seconds) -> int:
        """Return what a group owns of a resource and has not given away, at the worst moment of a term."""
        owed = self.policy.groups[group].quota.amounts().get(resource, 0)
        return owed - _most_at_once(list(self._given(group, resource, start, end)), start, end)

    def user_limit(self, group: str, user: str, start: Seconds, end: Seconds) -> int | None:
        """Return how many cards a user may hold at the best moment of a term; None = nothing bounds them."""
        own, common = self.policy.users.get(user), self.policy.groups[group].user.gpus
        limit = common if own is None or own.gpus is None else own.gpus
        raised = [
            (boost.start, boost.end, boost.amounts.get(GPU, 0))
            for boost in self.ledger.grants.boosts.values()
            if boost.user == user and boost.lasts(self.now)
        ]
        return None if limit is None else limit + _most_at_once(raised, start, end)

    def _given(
        self, group: str, resource: str, start: Seconds, end: Seconds
    ) -> Iterator[tuple[Seconds, Seconds, int]]:
        """Yield what a group has given away within a term: from when, until when, how much."""
        grants = self.ledger.grants
        for boost in grants.boosts.values():
            if boost.giver == group and boost.lasts(self.now) and boost.start < end and boost.end > start:
                yield boost.start, boost.end, boost.amounts.get(resource, 0)
        models = {gpu.uuid: gpu.model for gpu in self.frame.gpus}
        for kept in grants.reservations.values():
            if kept.giver == group and kept.lasts(self.now) and kept.start < end and kept.end > start:
                yield kept.start, kept.end, sum(_cards_of(models, card, resource) for card in kept.cards)


def new_boost(body: BoostRequest, desk: Desk) -> NewBoost:
    """Return the boost that a request describes, if who grants it may.

    Raises
    ------
    ApiError
        A value cannot be read, or the group that should give has not so much left.
    """
    group = desk.group(body.group)
    amounts, budget = wanted(body)
    start, end = term(body.start, _until(body, amounts, desk), desk.policy.zone, desk.now)
    giver = _giver(body, amounts, desk)
    if body.user is not None:
        _within_quota(group, body.user, amounts, budget, (start, end), desk)
    elif giver is not None:
        for resource, amount in amounts.items():
            if amount > (left := desk.left(giver, resource, start, end)):
                raise too_much(giver, resource, amount, left, desk)
    if budget:
        _within_budget(group, giver, budget, start, desk)
    return NewBoost(group, start, end, amounts, budget, body.user, giver, body.because.strip())


def wanted(body: BoostRequest) -> tuple[dict[str, int], int]:
    """Return the amounts and the milli-GPU seconds of budget that a boost names.

    Raises
    ------
    ApiError
        One cannot be read, or there is none.
    """
    try:
        typed = {f"{GPU}.{type_}": (f"gpus.{type_}", amount) for type_, amount in body.gpus_by_type.items()}
        milli = {GPU: ("gpus", body.gpus), **typed, CPUS: ("cpus", body.cpus)}
        amounts = {
            resource: units.parse_milli(amount, what=what, minimum=1)
            for resource, (what, amount) in milli.items()
            if amount is not None
        }
        if body.mem is not None:
            amounts[MEMORY] = units.parse_size(body.mem, what="mem")
        hours = (
            0 if body.gpu_hours is None else units.parse_milli(body.gpu_hours, what="gpu_hours", minimum=1)
        )
    except units.UnitError as error:
        raise invalid(error.message, error.remedy) from None
    if not amounts and not hours:
        raise invalid("A boost names what it adds.", "Write how many --gpus, --cpus, --mem or --gpu-hours.")
    return amounts, hours * GPU_HOUR // 1000


def words(boost: NewBoost | BoostRecord, desk: Desk) -> str:
    """Say what a boost gives: ``vision gets 2 cards more until 18:00 UTC on 01 Jul, out of lab``."""
    parts = [amount_text(resource, amount) for resource, amount in boost.amounts.items()]
    parts += [f"{decimal(boost.budget * 1000 // GPU_HOUR)} GPU hours"] if boost.budget else []
    whom = boost.group if boost.user is None else f"{boost.user} in {boost.group}"
    since = f" from {desk.time(boost.start)}" if boost.start > desk.now else ""
    source = f", out of {boost.giver}" if boost.giver else ""
    return f"{whom} gets {', '.join(parts)} more{since} until {desk.time(boost.end)}{source}"


def too_much(giver: str, resource: str, amount: int, left: int, desk: Desk) -> ApiError:
    """Build the refusal of more than a group has left to give."""
    owed = desk.policy.groups[giver].quota.amounts().get(resource, 0)
    return ApiError(
        409,
        "exceeds_quota",
        f"{giver} is owed {amount_text(resource, owed)} and has {amount_text(resource, max(0, left))} of "
        f"that left to give then; {amount_text(resource, amount)} would be too much.",
        used=owed - left,
        limit=owed,
        unit=resource,
        hint="Give less, choose another time, or ask an administrator.",
    )


def outranked(group: str, desk: Desk) -> NoReturn:
    """Refuse who manages no group that could give.

    Raises
    ------
    ApiError
        Always.
    """
    raise forbidden(
        f"{desk.who.user} manages no group that could give something to {group}: a manager grants out of the "
        "own group's quota, an administrator out of the pool. Ask with: jupyter gpupool request"
    )


def _until(body: BoostRequest, amounts: Mapping[str, int], desk: Desk) -> str:
    if body.until is not None:
        return body.until
    budget = desk.ledger.grants.budgets(desk.policy, desk.now).get(body.group)
    if amounts or budget is None:
        raise invalid("until is missing: whatever is granted has an end.", "Write --until 2026-07-01, or 3d.")
    return f"{budget.ends[0] - desk.now}s"


def _giver(body: BoostRequest, amounts: Mapping[str, int], desk: Desk) -> str | None:
    """Return the group that gives: the one named; for a manager, the nearest above that is managed.

    A boost of one user's cards changes nothing of what groups are owed.
    """
    if body.out_of is not None:
        giver = desk.group(body.out_of)
        if not desk.manages(giver):
            raise forbidden(f"{desk.who.user} does not manage {giver}, and cannot give out of its quota.")
        if giver == body.group:
            raise invalid(f"{giver} cannot give to itself.", "Name another group with --out-of.")
        return giver
    if desk.who.admin:
        return None
    if body.user is not None:
        if not desk.manages(body.group):
            outranked(body.group, desk)
        return None
    for above in desk.policy.above(body.group):
        if desk.manages(above):
            return above
    outranked(body.group, desk)


def limit_to_raise(
    group: str, user: str, amounts: Mapping[str, int], budget: int, term: tuple[Seconds, Seconds], desk: Desk
) -> int:
    """Return how many cards a user may hold in a term, which is all that can be raised of one user.

    Raises
    ------
    ApiError
        Something else is to be raised, or nothing bounds them.
    """
    if set(amounts) != {GPU} or budget:
        raise invalid("Of one user only the number of cards is bounded.", "Write --gpus and nothing else.")
    limit = desk.user_limit(group, user, *term)
    if limit is None:
        raise invalid(f"Nothing bounds the cards of {user}: there is no limit to raise.")
    return limit


def _within_quota(
    group: str, user: str, amounts: Mapping[str, int], budget: int, term: tuple[Seconds, Seconds], desk: Desk
) -> None:
    """Refuse a user's boost of anything but cards, or of more cards than the group is owed."""
    limit = limit_to_raise(group, user, amounts, budget, term, desk)
    owed = desk.frame.groups[group].quota.quota.get(GPU, 0)
    if limit + amounts[GPU] > owed and not desk.who.admin:
        raise ApiError(
            409,
            "exceeds_quota",
            f"{user} may hold {amount_text(GPU, limit)}; with {amount_text(GPU, amounts[GPU])} more that "
            f"would be above what {group} is owed, {amount_text(GPU, owed)}.",
            used=limit,
            limit=owed,
            unit=GPU,
            hint="Give less, or ask an administrator.",
        )


def _within_budget(group: str, giver: str | None, budget: int, start: Seconds, desk: Desk) -> None:
    budgets = desk.ledger.grants.budgets(desk.policy, desk.now)
    if group not in budgets:
        raise invalid(f"{group} has no budget of its own: nothing bounds its GPU hours.")
    if giver is None:
        return
    if giver not in budgets:
        raise invalid(
            f"{giver} has no budget out of which GPU hours could be given.", "Ask an administrator."
        )
    if start >= (ends := budgets[giver].ends[0]):
        raise invalid(
            f"{giver} can give GPU hours of the present period, which ends {desk.time(ends)}.",
            "Begin before, or ask an administrator.",
        )
    left = budgets[giver].capacity - budgets[giver].spent
    if budget > left:
        raise ApiError(
            409,
            "exceeds_budget",
            f"{giver} has {_hours(left)} of its {_hours(budgets[giver].capacity)} GPU hours left; "
            f"{_hours(budget)} would be too much.",
            used=budgets[giver].spent // GPU_HOUR,
            limit=budgets[giver].capacity // GPU_HOUR,
            unit="GPU hours",
            hint="Give less, or ask an administrator.",
        )


def _hours(budget: int) -> str:
    return decimal(max(0, budget) * 1000 // GPU_HOUR)


def _most_at_once(spans: Sequence[tuple[Seconds, Seconds, int]], start: Seconds, end: Seconds) -> int:
    """Return the largest sum of the amounts (from when, until when, how much) within a term."""
    moments = {start, *(begins for begins, _, _ in spans if start < begins < end)}
    return max(sum(n for begins, ends, n in spans if begins <= at < ends) for at in moments)


def _cards_of(models: Mapping[str, str], card: str, resource: str) -> int:
    """Return what a card counts of a resource."""
    if resource == GPU:
        return 1000
    type_ = resource.removeprefix(f"{GPU}.")
    return 1000 if type_ != resource and is_type(models.get(card, ""), type_) else 0


def typed_resources(policy: Policy, group: str, cards: Iterable[Gpu | CardRecord]) -> dict[str, int]:
    """Return what reserved cards take of what a group's quota names."""
    models = {gpu.uuid: gpu.model for gpu in cards}
    named = [resource for resource in policy.groups[group].quota.amounts() if resource.startswith(GPU)]
    return {r: sum(_cards_of(models, uuid, r) for uuid in models) for r in dict.fromkeys([GPU, *named])}
