"""Who held what at a moment of the past.

Owns: reading it from the records. Pure. Never: what of it an asker may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jupyter_gpupool.ledger.records import CardRecord, Job, LeaseRecord, SessionRecord
from jupyter_gpupool.service.policy_store import PastPolicy


@dataclass(frozen=True)
class Holding:
    """A lease at a moment, and the work that it was for."""

    lease: LeaseRecord
    work: Job | SessionRecord


def holdings(
    leases: Iterable[LeaseRecord], works: Mapping[int, Job | SessionRecord], moment: int
) -> list[Holding]:
    """Return what was held at a moment, by lease; what was freed at it was held no more."""
    found = []
    for lease in leases:
        if lease.requested <= moment and (lease.freed is None or moment < lease.freed):
            work = works.get(lease.work)
            if work is not None:
                found.append(Holding(lease, work))
    return sorted(found, key=lambda holding: holding.lease.id)


def policy_at(past: Iterable[PastPolicy], moment: int) -> PastPolicy | None:
    """Return the policy that was in force at a moment, of those `past`, newest first."""
    return next((policy for policy in past if policy.since <= moment), None)


def named_card(name: str, cards: Mapping[str, CardRecord]) -> list[str]:
    """Return the cards that a name may mean: a UUID or its beginning, or ``node1:0``."""
    if name in cards:
        return [name]
    node, _, index = name.rpartition(":")
    places = [uuid for uuid, card in cards.items() if (card.node, str(card.index)) == (node, index)]
    return places or [uuid for uuid in cards if uuid.lower().startswith(name.lower())]
