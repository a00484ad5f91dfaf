"""What is left of work that has ended.

Owns: which processes do not go away after the end of their job or session, and the words in which
administrators hear of it, once for each. Never: ending one, or when a lease is free (see `release`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from jupyter_gpupool.engines.base import Ended, Engine, Started
from jupyter_gpupool.ledger.outbox import Message
from jupyter_gpupool.ledger.records import LeaseRecord
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.release import Releases

PATIENCE_S = 60
KILLED = "though killed again and again"
ON_CARDS = "on its cards"


class Remains:
    """What is left on one pool."""

    def __init__(self, controller: Controller, engine: Engine, releases: Releases) -> None:
        self._controller = controller
        self._engine = engine
        self._releases = releases

    async def messages(self, attempts: list[Started | Ended]) -> AsyncIterator[Message]:
        """Yield what to tell of the processes that have been left for a while.

        Parameters
        ----------
        attempts
            All that the engine has.

        Raises
        ------
        EngineError
            It cannot say which processes are left.
        """
        before = self._controller.now - PATIENCE_S
        leases = {lease.key: lease for lease in self._held()}
        for report in attempts:
            if isinstance(report, Ended) and not report.tree_gone and report.ended <= before:
                pids = await self._engine.left(report.key)
                if pids and report.key in leases:
                    yield _message(leases[report.key], report.ended, pids, KILLED)
        for lease, since, pids in self._releases.on_cards():
            if pids and since <= before:
                yield _message(lease, since, pids, ON_CARDS)

    def _held(self) -> list[LeaseRecord]:
        ledger = self._controller.ledger
        return [ledger.leases[lease.id] for lease in ledger.held()]


def _message(lease: LeaseRecord, since: float, pids: Sequence[int], how: str) -> Message:
    work = f"{lease.kind} {lease.work}"
    nodes = ", ".join(lease.placement.nodes)
    text = (
        f"The {work} of {lease.owner} ended at {iso(since)}, but not all of its processes did. "
        f"Left on {nodes}, {how}: {', '.join(map(str, pids))}. "
        "What it holds is given to nobody until they are gone. "
        f"What they wait for: ps -o pid,stat,wchan:32,args -p {','.join(map(str, pids))}. "
        f"One that hangs in a driver may need a restart of {nodes}."
    )
    return Message(f"left {lease.key}", None, f"Processes of the {work} do not end on {nodes}", text)
