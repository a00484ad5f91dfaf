"""How groups stand: who uses more than they are owed, and who lends cards to whom, until when.

Owns: both, computed from what is held. Pure. Never: what follows from it, or what a group may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.model import Group, Lease, Seconds, Snapshot
from jupyter_gpupool.scheduler.quota import GPU, POOL


@dataclass(frozen=True)
class Loan:
    """Cards that one group owns and another uses, `until` its work there is expected to end.

    With `on_demand` the owner gets them back within the grace of that work, by submitting its own.
    """

    lender: str
    borrower: str
    gpu_milli: int
    until: Seconds
    on_demand: bool


def over_quota(snapshot: Snapshot, now: Seconds) -> frozenset[str]:
    """Return the groups that use more than they own, with those below them, of what they are owed."""
    limits = Limits(snapshot, now)
    return frozenset(name for name in snapshot.groups if limits.excess(name))


def loans(snapshot: Snapshot, now: Seconds) -> list[Loan]:
    """Return who lends cards to whom: what a group uses above its own quota is another's that is unused.

    It comes from the nearest in the tree of groups first: what is above the group or beside it, then
    further up, at last what no quota names.
    """
    held: dict[str, list[Lease]] = {}
    for lease in snapshot.leases:
        held.setdefault(lease.group, []).append(lease)
    unused = _balances(snapshot, held)
    ends = Ends(snapshot, now)
    found = []
    for borrower in [name for name, balance in unused.items() if balance < 0]:
        lacks = -unused[borrower]
        used = _borrowed(held[borrower], lacks)
        for lender in _nearest(borrower, unused, snapshot.groups):
            if lacks <= 0:
                break
            milli = min(lacks, unused[lender])
            unused[lender] -= milli
            lacks -= milli
            found.append(
                Loan(
                    lender,
                    borrower,
                    milli,
                    until=max(ends.of(lease) for lease in used),
                    on_demand=all(lease.resumable for lease in used),
                )
            )
    return found


def _balances(snapshot: Snapshot, held: Mapping[str, list[Lease]]) -> dict[str, int]:
    """Return what each group, and the pool, owns of cards and does not use itself; negative above it."""
    owed = {name: group.quota.quota.get(GPU, 0) for name, group in snapshot.groups.items()}
    balances = {
        name: milli - sum(lease.placement.gpu_milli for lease in held.get(name, ()))
        for name, milli in owed.items()
    }
    return balances | {POOL: max(0, 1000 * len(snapshot.gpus) - sum(owed.values()))}


def _borrowed(leases: list[Lease], milli: int) -> list[Lease]:
    """Return the leases above the quota: jobs, the most recently started first; at least one."""
    used: list[Lease] = []
    order = sorted(leases, key=lambda lease: (lease.kind == "session", -lease.start, -lease.id))
    for lease in order:
        if milli <= 0:
            break
        if lease.placement.gpu_milli:
            used.append(lease)
            milli -= lease.placement.gpu_milli
    return used


def _nearest(borrower: str, unused: Mapping[str, int], groups: Mapping[str, Group]) -> list[str]:
    """Return who has cards unused, the nearest first; the order of the policy among equals."""
    steps = {name: place for place, name in enumerate(_upward(borrower, groups))}

    def distance(name: str) -> tuple[int, int]:
        chain = _upward(name, groups)
        common = next(place for place, above in enumerate(chain) if above in steps)
        return steps[chain[common]], common

    return sorted((name for name, milli in unused.items() if milli > 0), key=distance)


def _upward(name: str, groups: Mapping[str, Group]) -> list[str]:
    """Return a group, those above it, and the pool."""
    chain = [name]
    while chain[-1] in groups:
        parent = groups[chain[-1]].parent
        chain.append(parent if parent in groups else POOL)
    return chain
