"""What waits, sorted in once.

Owns: the jobs that may take part, by what they ask for and by group, from one snapshot to the next; so a pass
finds those for whom a room is large enough without looking at all.
Never: who could start (`shortlist`), nor the order (`ranking`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from jupyter_gpupool.scheduler.model import Request, Seconds, Work

Key = TypeVar("Key", bound=Hashable)
Entry = tuple[int, int, Work]  # what it is sorted by, its id, and itself


class Queued:
    """The waiting jobs of one snapshot, until it is turned to the next.

    `alike` are those of one request and class, the shortest first; `of_group` those of one group, those that
    ask for the fewest whole cards first.
    """

    def __init__(self) -> None:
        self.alike: dict[tuple[Request, str], list[Entry]] = {}
        self.of_group: dict[str, list[Entry]] = {}
        self._known: dict[int, Work] = {}

    def turn_to(self, waiting: Sequence[Work]) -> None:
        """Take note of who came and went."""
        known = self._known
        there = self._known = dict(zip(map(id, waiting), waiting, strict=True))
        for work in _in_order([known[key] for key in known.keys() - there.keys()]):
            self._leave(work)
        for work in _in_order([there[key] for key in there.keys() - known.keys()]):
            self._join(work)

    def fitting(self, longest: Callable[[Request], Seconds]) -> Iterator[Work]:
        """Yield those that last no longer than there is room for such a request."""
        for (request, _), entries in self.alike.items():
            yield from first(entries, longest(request))

    def _join(self, work: Work) -> None:
        if takes_part(work):
            insort(self.alike.setdefault((work.request, work.priority), []), (work.limit, work.id, work))
            insort(self.of_group.setdefault(work.group, []), (work.request.gpus, work.id, work))

    def _leave(self, work: Work) -> None:
        if takes_part(work):
            _drop(self.alike, (work.request, work.priority), (work.limit, work.id, work))
            _drop(self.of_group, work.group, (work.request.gpus, work.id, work))


def takes_part(work: Work) -> bool:
    """Say whether `work` is a job that nothing keeps from starting but others and the time."""
    return work.kind == "job" and not (work.held or work.invalid or work.after)


def first(entries: Iterable[Entry], most: int) -> Iterator[Work]:
    """Yield works up to those that are sorted in by `most`."""
    for measure, _, work in entries:
        if measure > most:
            return
        yield work


def _drop(lists: dict[Key, list[Entry]], key: Key, entry: Entry) -> None:
    entries = lists[key]
    del entries[bisect_left(entries, entry[:2], key=lambda one: one[:2])]
    if not entries:
        del lists[key]


def _in_order(works: list[Work]) -> list[Work]:
    return sorted(works, key=lambda work: work.id)
