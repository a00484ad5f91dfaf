"""What people have granted, in the scheduler's words.

Owns: the translation of the ledger's grants for the frame. Never: a rule, or a change.
"""

from __future__ import annotations

from jupyter_gpupool.frame import Boost, Grants
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.scheduler.model import Reservation


def current(ledger: Ledger, now: int) -> Grants:
    """Return what is granted now or will be."""
    grants = ledger.grants
    return Grants(
        boosts=tuple(
            Boost(one.group, one.amounts, one.start, one.end, one.user, one.giver)
            for one in grants.boosts.values()
            if one.lasts(now)
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
