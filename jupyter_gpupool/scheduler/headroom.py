"""What stays free for sessions where cards are lent by day.

Owns: the free slices of a lending partition on the timeline. Never: when cards are lent (`lending`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jupyter_gpupool.scheduler.card import Card
from jupyter_gpupool.scheduler.lending import Lender
from jupyter_gpupool.scheduler.model import Mib, Seconds
from jupyter_gpupool.scheduler.timeline import BEGIN, FOREVER, Profile


class Headroom:
    """The smallest slices that sessions would find free, less those that are kept for them by day.

    They are counted when somebody first asks; from then on every change of a card must be told.
    """

    def __init__(self, lender: Lender, cards: Sequence[Card]) -> None:
        self._lender = lender
        self._cards = cards
        self._profile: Profile | None = None

    def forget(self) -> None:
        """Count anew when somebody next asks."""
        self._profile = None

    def slices(self, mib: Mib, memory: Mib) -> int:
        """Return how many whole slices `mib` of a card of `memory` are."""
        part, whole = self._lender.lend.slice
        return max(0, mib) // max(1, memory * part // whole)

    @property
    def profile(self) -> Profile:
        """Return how many more slices jobs could take, over time."""
        if self._profile is None:
            self._profile = Profile(0)
            for card in self._cards:
                self.count(card, BEGIN, FOREVER, 1)
            windows = self._lender.windows
            edges = [BEGIN, *(edge for window in windows for edge in window), FOREVER]
            for closes, opens in list(pairwise(edges))[::2]:
                self._profile.book(closes, opens, self._lender.lend.headroom)
        return self._profile

    def count(self, card: Card, start: Seconds, end: Seconds, sign: int) -> None:
        """Add what is free on a card over [start, end); `sign` -1 takes it away."""
        if self._profile is not None:
            for first, last, free in card.views["session"].levels(start, end):
                self._profile.book(first, last, -sign * self.slices(free, card.memory))
