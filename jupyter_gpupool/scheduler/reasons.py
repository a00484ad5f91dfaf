"""Why something waits, in words that its owner understands."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpupool.scheduler.model import Snapshot, Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence with the numbers, and one that says what would clear it."""

    message: str
    clears: str


def explain(verdict: Verdict, snapshot: Snapshot) -> Explanation:
    """Turn a verdict's facts into sentences."""
    return Explanation(verdict.reason.value, "")
