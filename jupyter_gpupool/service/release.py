"""When what a lease held is free again.

Owns: the leases that are being given back, until the memory of their cards is seen free. "Unknown" frees
nothing. Never: ending a process, or telling of one that does not end (see `remains`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from jupyter_gpupool.devices.base import Pool
from jupyter_gpupool.devices.strangers import Holder, lease_of
from jupyter_gpupool.ledger import LedgerError, LedgerUnavailable
from jupyter_gpupool.ledger.records import LeaseRecord, LeaseState
from jupyter_gpupool.ledger.store import Ledger

log = logging.getLogger("gpupool")

CHECK_S = 0.25


class Releases:
    """The leases in state ``releasing``.

    Parameters
    ----------
    on_free
        Called when room became free.
    """

    def __init__(self, ledger: Ledger, pool: Pool, clock: Callable[[], int], on_free: Callable[[], None]):
        self._ledger = ledger
        self._pool = pool
        self._clock = clock
        self._on_free = on_free
        self._holders: dict[int, Holder] = {}
        self._gone: dict[int, int] = {}
        self._handle: asyncio.TimerHandle | None = None

    def memory_is_free(self, lease: LeaseRecord, holder: Holder | None = None) -> bool:
        """Whether no process of the lease is on its cards, and no dead one still has memory there."""
        return not self._on_cards(lease, holder)

    def on_cards(self) -> Iterator[tuple[LeaseRecord, int, list[int]]]:
        """Yield the leases that wait for their cards: since when, and for which processes."""
        for lease in self._releasing():
            if lease.id in self._gone:
                yield lease, self._gone[lease.id], self._on_cards(lease, self._holders.get(lease.id))

    def tree_gone(self, key: str) -> None:
        """The last process of an attempt is gone: free its lease as soon as its memory is."""
        self._await([lease.id for lease in self._releasing() if lease.key == key])

    def given_back(self, lease: int, holder: Holder | None) -> None:
        """A session's lease is over; its holder may live on, but not on the card."""
        if holder:
            self._holders[lease] = holder
        self._await([lease])

    def adopt(self, running: set[str]) -> None:
        """At boot, take up the leases being given back; those of attempts in `running` wait for their end."""
        self._await([lease.id for lease in self._releasing() if lease.key not in running])

    def close(self) -> None:
        """Look no more; the next service does."""
        if self._handle:
            self._handle.cancel()

    def _releasing(self) -> list[LeaseRecord]:
        held = (self._ledger.leases[view.id] for view in self._ledger.held())
        return [lease for lease in held if lease.state is LeaseState.RELEASING]

    def _on_cards(self, lease: LeaseRecord, holder: Holder | None) -> list[int]:
        if self._pool.simulated or not lease.placement.gpus:
            return []
        uuids = {share.uuid for share in lease.placement.gpus}
        there = {process.pid for process in self._pool.processes() if process.uuid in uuids}
        return sorted(pid for pid in there if _is_of(pid, holder))

    def _await(self, leases: list[int]) -> None:
        """From now on only their cards are waited for."""
        for lease in leases:
            self._gone.setdefault(lease, self._clock())
        self._check()

    def _check(self) -> None:
        if self._handle:
            self._handle.cancel()
            self._handle = None
        freed = False
        releasing = self._releasing()
        self._gone = {lease.id: self._gone[lease.id] for lease in releasing if lease.id in self._gone}
        for lease in releasing:
            if lease.id in self._gone and self.memory_is_free(lease, self._holders.get(lease.id)):
                freed |= self._free(lease.id)
        if freed:
            self._on_free()
        if self._gone:
            self._handle = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _free(self, lease: int) -> bool:
        try:
            self._ledger.free_lease(lease, self._clock())
        except LedgerUnavailable:
            return False
        except LedgerError:
            log.exception("Lease %s cannot be freed", lease)
        self._gone.pop(lease, None)
        self._holders.pop(lease, None)
        return True


def _is_of(pid: int, holder: Holder | None) -> bool:
    """Whether a process on a card is dead (its memory is still to be freed), or belongs to the holder."""
    try:
        found = lease_of(pid, [holder] if holder else [])
    except (FileNotFoundError, ProcessLookupError):
        return True
    return found is not None
