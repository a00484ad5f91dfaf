"""What people have granted, in the scheduler's words.

Owns: the translation of the ledger's grants for the frame. Never: a rule, or a change.
"""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpupool.frame import Boost, Grants
from jupyter_gpupool.ledger.grant_records import ReservationRecord
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Reservation
from jupyter_gpupool.service.granting import typed_resources


def current(ledger: Ledger, policy: Policy, now: int) -> Grants:
    """Return what is granted now or will be."""
    grants = ledger.grants
    return Grants(
        boosts=(
            *(
                Boost(one.group, one.amounts, one.start, one.end, one.user, one.giver)
                for one in grants.boosts.values()
                if one.lasts(now)
            ),
            *_given_away(ledger, policy, now),
        ),
        reservations=tuple(
            Reservation(
                one.id,
                frozenset(one.cards),
                one.start,
                one.end,
                frozenset(one.groups),
                frozenset(one.users),
                one.because,
            )
            for one in grants.reservations.values()
            if one.lasts(now)
        ),
        drains={one.node: one.because for one in grants.drains.values()},
    )


def _given_away(ledger: Ledger, policy: Policy, now: int) -> Iterator[Boost]:
    """Yield what groups are not owed meanwhile: cards out of their quota, set apart for nobody of theirs."""
    for one in ledger.grants.reservations.values():
        if one.giver in policy.groups and one.lasts(now) and not _keeps(one, policy):
            cards = [ledger.cards[uuid] for uuid in one.cards if uuid in ledger.cards]
            amounts = typed_resources(policy, one.giver, cards)
            yield Boost(None, amounts, one.start, one.end, giver=one.giver)


def _keeps(one: ReservationRecord, policy: Policy) -> bool:
    """Whether the giver's own people use the cards: what they use counts against its quota anyway."""
    if one.users and not one.groups:
        return True
    return any(one.giver in (group, *policy.above(group)) for group in one.groups)
