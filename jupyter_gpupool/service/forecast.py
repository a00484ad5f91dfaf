"""What the last whole plan said about everything that waits.

Owns: the verdicts, their sentences, and waiting for the next plan. Never: a decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from jupyter_gpupool.scheduler.model import Plan, Snapshot, Verdict, Work
from jupyter_gpupool.scheduler.reasons import Explanation, explain


class Forecast:
    """The verdicts of the last plan, less those that something has made void since."""

    def __init__(self) -> None:
        self._verdicts: dict[int, Verdict] = {}
        self._works: dict[int, Work] = {}
        self._snapshot: Snapshot | None = None
        self._planned = asyncio.Event()

    def take(self, plan: Plan, snapshot: Snapshot) -> None:
        """Keep a new plan's verdicts; `snapshot` is what it was made of."""
        self._verdicts = dict(plan.verdicts)
        self._works = {work.id: work for work in snapshot.waiting}
        self._snapshot = snapshot
        self._planned.set()
        self._planned = asyncio.Event()

    def drop(self, works: Iterable[int]) -> None:
        """Forget what was said about work that has changed since."""
        for work in works:
            self._verdicts.pop(work, None)

    def of(self, work: int) -> Verdict | None:
        """Return the verdict, if the last plan knew the work as it is now."""
        return self._verdicts.get(work)

    def explain(self, verdict: Verdict) -> Explanation:
        """Return the verdict in sentences."""
        assert self._snapshot is not None, "a verdict comes with its snapshot"
        return explain(verdict, replace(self._snapshot, waiting=(self._works[verdict.work],)))

    async def wait(self, work: int, timeout: float) -> Verdict | None:
        """Return the verdict, waiting up to `timeout` seconds for the next plan to give one."""
        if work not in self._verdicts:
            try:
                await asyncio.wait_for(self._planned.wait(), timeout)
            except TimeoutError:
                pass
        return self._verdicts.get(work)
