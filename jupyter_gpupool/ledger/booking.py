"""Whether a placement fits on its cards beside what is there already.

Owns the ledger's own check of the first invariant: leases on a card never exceed its memory, nor 100 % of
its compute; a whole card is shared with nobody; one sharing mode per occupied card. The scheduler
never proposes otherwise; the ledger does not take its word for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jupyter_gpupool.ledger.errors import Overbooked
from jupyter_gpupool.ledger.records import CardRecord, LeaseRecord


@dataclass
class _Occupied:
    mib: int = 0
    compute: int = 0
    leases: int = 0
    whole: bool = False
    mode: str = ""


class Booking:
    """What is taken of each card; `take` refuses what does not fit beside it."""

    def __init__(self, cards: Mapping[str, CardRecord], leases: Iterable[LeaseRecord]) -> None:
        self._cards = cards
        self._occupied: dict[str, _Occupied] = {}
        for lease in leases:
            self._add(lease)

    def take(self, lease: LeaseRecord) -> None:
        """Book the lease's cards.

        Raises
        ------
        Overbooked
            If a card is unknown, or lacks memory or compute, or is not to be shared in this way.
        """
        uuids = [share.uuid for share in lease.placement.gpus]
        if len(set(uuids)) < len(uuids):
            raise Overbooked(f"The placement of {lease.kind} {lease.work} names a card twice.")
        for share in lease.placement.gpus:
            self._check(lease, share.uuid, share.mib)
        self._add(lease)

    def _check(self, lease: LeaseRecord, uuid: str, mib: int) -> None:
        card, there = self._cards.get(uuid), self._occupied.get(uuid, _Occupied())
        compute = there.compute + (lease.request.gpu_compute or 0)
        if card is None:
            problem = "it is not a card of this pool"
        elif there.leases and (there.whole or lease.whole):
            problem = f"a whole card is shared with nobody, and it holds {there.leases} lease(s)"
        elif there.mib + mib > card.memory_mib:
            problem = f"{there.mib} of {card.memory_mib} MiB are taken, {mib} MiB were to be added"
        elif compute > 100:
            problem = f"{compute} % of its compute would be given away"
        elif there.leases and there.mode != lease.mode:
            problem = f"it is shared as {there.mode}, not as {lease.mode}"
        else:
            return
        raise Overbooked(f"{lease.kind} {lease.work} cannot have card {uuid}: {problem}.")

    def _add(self, lease: LeaseRecord) -> None:
        for share in lease.placement.gpus:
            there = self._occupied.setdefault(share.uuid, _Occupied())
            there.mib += share.mib
            there.compute += lease.request.gpu_compute or 0
            there.leases += 1
            there.whole |= lease.whole
            there.mode = lease.mode
