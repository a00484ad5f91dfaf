"""What was found out about works, for as long as they are as they were.

Owns: remembering it by a work's id until another version of the work asks. Never: whether it still holds.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from jupyter_gpupool.scheduler.model import Work

Found = TypeVar("Found")

KEPT = 20_000
"""Of so many works beyond those that wait something is remembered, before all is forgotten."""


class Recall(Generic[Found]):
    """One finding of each work."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Work, Found]] = {}

    def of(self, work: Work) -> Found | None:
        """Return what is known of a work; None if nothing is."""
        known = self._known.get(work.id)
        return known[1] if known is not None and known[0] is work else None

    def keep(self, work: Work, found: Found) -> Found:
        """Remember a finding, and return it."""
        self._known[work.id] = work, found
        return found

    def trim(self, waiting: int) -> None:
        """Forget all when it is of many more works than wait."""
        if len(self._known) > waiting + KEPT:
            self._known.clear()
