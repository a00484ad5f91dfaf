"""How busy the devices of each lease are.

Owns: looking now and then, adding what is seen to the day's use, and since when a lease's devices have done
nothing. What the driver does not tell is unknown, never idle. Never: what follows for anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jupyter_gpupool.devices.base import Load, Pool
from jupyter_gpupool.devices.strangers import Holder, lease_of
from jupyter_gpupool.engines.base import Engine, EngineError, Started
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.ledger.use import CardUse, Key, Use
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Lease
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.holders import holders

LONGEST_S = 300
"""A gap between two looks counts for so long at most: nobody saw what was in it."""


@dataclass(frozen=True)
class Seen:
    """What one look has seen: by lease, in thousandths of a card; None = the driver does not tell."""

    leases: Mapping[int, int | None]
    cards: Mapping[str, int]


class Meter:
    """Looks at the cards of one pool."""

    def __init__(self, pool: Pool, ledger: Ledger, engine: Engine) -> None:
        self._pool = pool
        self._ledger = ledger
        self._engine = engine
        self._looked: int | None = None
        self._seen = Seen({}, {})
        self._unused: dict[int, int] = {}

    def in_use(self, lease: int) -> bool | None:
        """Whether the devices of a lease did something at the last look; None = not known."""
        used = self._seen.leases.get(lease)
        return None if used is None else used > 0

    def unused_since(self, lease: int) -> int | None:
        """Return since when the devices of a lease are known to have done nothing."""
        return self._unused.get(lease)

    async def look(self, now: int, policy: Policy) -> None:
        """See how busy every card is, and write it down.

        Raises
        ------
        LedgerUnavailable
            It cannot be written down.
        """
        if self._pool.simulated:
            return
        held = self._ledger.held()
        try:
            runners = [item for item in await self._engine.list() if isinstance(item, Started)]
        except EngineError:
            return
        self._seen = seen = await aside(self._measure, held, runners)
        self._unused = {
            id: self._unused.get(id, now)
            for id, used in seen.leases.items()
            if used is not None and used == 0
        }
        passed = 0 if self._looked is None else min(LONGEST_S, max(0, now - self._looked))
        self._looked = now
        if passed:
            uses, cards = measured(held, seen, passed)
            self._ledger.days.measured(policy.zone, now, uses, cards)

    def _measure(self, held: tuple[Lease, ...], runners: list[Started]) -> Seen:
        loads = self._pool.loads()
        pids = {pid for load in loads.values() for pid in load.by_process or ()}
        return seen(held, loads, _owners(pids, list(holders(self._ledger, runners)) if pids else []))


def _owners(pids: Iterable[int], known: list[Holder]) -> dict[int, int]:
    """Return the lease of each process that belongs to one."""
    found = {}
    for pid in pids:
        try:
            lease = lease_of(pid, known)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if lease is not None:
            found[pid] = lease
    return found


def seen(held: Iterable[Lease], loads: Mapping[str, Load], owners: Mapping[int, int]) -> Seen:
    """Return how busy each lease's devices are: alone on its cards, as they are; else by its processes."""
    leases = [lease for lease in held if lease.placement.gpus]
    together: dict[str, int] = {}
    for lease in leases:
        for share in lease.placement.gpus:
            together[share.uuid] = together.get(share.uuid, 0) + 1
    found: dict[int, int | None] = {}
    for lease in leases:
        parts: list[int | None] = []
        for share in lease.placement.gpus:
            load = loads.get(share.uuid, Load())
            alone = together[share.uuid] == 1
            parts.append(load.busy_milli if alone else _of_processes(load, lease.id, owners))
        known = [part for part in parts if part is not None]
        found[lease.id] = sum(known) if len(known) == len(parts) else None
    cards = {uuid: load.busy_milli for uuid, load in loads.items() if load.busy_milli is not None}
    return Seen(found, cards)


def _of_processes(load: Load, lease: int, owners: Mapping[int, int]) -> int | None:
    if load.by_process is None:
        return None
    return sum(busy for pid, busy in load.by_process.items() if owners.get(pid) == lease)


def measured(held: Iterable[Lease], seen: Seen, passed: int) -> tuple[dict[Key, Use], dict[str, CardUse]]:
    """Return what a look adds to a day, `passed` seconds after the one before."""
    uses: dict[Key, Use] = {}
    for lease in held:
        if (used := seen.leases.get(lease.id)) is not None:
            key = (lease.group, lease.user, lease.kind)
            part = Use(known_milli_s=lease.placement.gpu_milli * passed, used_milli_s=used * passed)
            uses[key] = uses.get(key, Use()) + part
    cards = {uuid: CardUse(known_s=passed, used_milli_s=busy * passed) for uuid, busy in seen.cards.items()}
    return uses, cards
