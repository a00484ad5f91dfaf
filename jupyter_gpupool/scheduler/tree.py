"""What groups use over time, and at one moment.

Owns: the tree of groups on the timeline: what each uses of a resource, with what those below it take above
what they keep; and the same as a tally at one moment, for the ranking.
Never: what they own, keep and may reach (`quota`), nor what follows from it (`limits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jupyter_gpupool.scheduler.model import Seconds
from jupyter_gpupool.scheduler.quota import ROOT, QuotaTree
from jupyter_gpupool.scheduler.timeline import BEGIN, FOREVER, Profile

Span = tuple[Seconds, Seconds, int]  # an amount over [start, end)


class Accounts:
    """The use of one resource by all groups.

    Parameters
    ----------
    held
        What the leases of a group hold; it is read when an account is first looked at.
    """

    def __init__(self, tree: QuotaTree, held: Callable[[str], Iterable[Span]]) -> None:
        self.tree = tree
        self._held = held
        self._profiles: dict[str, Profile] = {}
        self._chains: dict[str, tuple[tuple[Profile, int | None], ...]] = {}

    def profile(self, name: str) -> Profile:
        """Return what a node has free of what it owns with those below it."""
        found = self._profiles.get(name)
        if found is None:
            found = self._profiles[name] = Profile(self.tree.subtree(name))
            for member in self.tree.members(name) if name != ROOT else ():
                for span in self._held(member):
                    found.book(*span)
            for child in self.tree.children(name):
                for span in _above([(BEGIN, FOREVER, 0)], self.profile(child), self._lent(child), whole=True):
                    found.book(*span)
        return found

    def counted(self, group: str) -> list[Profile]:
        """Return the profiles in which what `group` takes may count."""
        return [profile for profile, _ in self._chain(group)]

    def book(self, group: str, start: Seconds, end: Seconds, amount: int) -> None:
        """Count `amount` for a group over [start, end), and above it what exceeds what is kept there."""
        spans: list[Span] = [(start, end, amount)]
        for profile, lent in self._chain(group):
            above = spans if lent is None else _above(spans, profile, lent)
            for span in spans:
                profile.book(*span)
            spans = above

    def _chain(self, group: str) -> tuple[tuple[Profile, int | None], ...]:
        """Return the profiles in which a group counts, its own first; with what is lent if some is kept."""
        found = self._chains.get(group)
        if found is None:
            names = self.tree.upward(self.tree.home(group))
            found = self._chains[group] = tuple(
                (self.profile(name), self._lent(name) if name != ROOT and self.tree.local(name) else None)
                for name in names
            )
        return found

    def _lent(self, name: str) -> int:
        return self.tree.subtree(name) - self.tree.local(name)


def _above(spans: Iterable[Span], profile: Profile, lent: int, *, whole: bool = False) -> list[Span]:
    """Return by how much use exceeds what is kept when `spans` are added: the `whole`, or what is new."""
    found: list[Span] = []
    for start, end, amount in spans:
        for first, last, free in profile.levels(start, end):
            before = 0 if whole else max(0, lent - free)
            new = max(0, lent - free + amount) - before
            if new:
                found.append((first, last, new))
    return found


class Tally:
    """What groups use of one resource at one moment, counted up claim by claim."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree
        self._used: dict[str, int] = {}

    def add(self, group: str, amount: int) -> None:
        """Count `amount` for a group and those above it."""
        tree, used = self._tree, self._used
        name = tree.home(group)
        while amount and name != ROOT:
            before = used.get(name, 0)
            used[name] = before + amount
            keeps = tree.local(name)
            amount = max(0, before + amount - keeps) - max(0, before - keeps)
            name = tree.parent(name)

    def left(self, group: str) -> int:
        """Return what a group, which names the resource, has left of what it owns; negative above it."""
        return self._tree.subtree(group) - self._used.get(group, 0)
