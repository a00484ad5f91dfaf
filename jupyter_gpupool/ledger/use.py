"""What a day's work comes to: sums over the records in memory.

Owns: the values that a report adds up, and how they follow from jobs, sessions and leases. Pure. Never: the
database, a clock.

Times are seconds; what is integrated over time is milli-GPU seconds (MiB seconds of a card).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, time, timedelta
from typing import Any, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

from jupyter_gpupool.ledger.records import Job, LeaseRecord, SessionRecord

Key: TypeAlias = tuple[str, str, str]
"""Group, user, and kind of work: ``job`` or ``session``."""


@dataclass(frozen=True)
class Use:
    """What one user of a group did with one kind of work on one day; values of several days add up.

    Attributes
    ----------
    gpu_milli_s, charged_milli_s
        What was held of GPUs, and that times the price of its priority.
    submitted, started
        Jobs, or sessions, that came, and that got their first lease.
    wait_s, waits
        The sum of the times from submission to that, and how many there were of each (see `rounded`).
    completed, failed, cancelled, timed_out
        Jobs by how they ended.
    stopped
        How often a run was asked to leave for others.
    known_milli_s, used_milli_s
        How much of what was held had its use measured, and how much of that the devices were busy.
    idle_s, idled
        How long sessions did nothing, and how often one became idle.
    """

    gpu_milli_s: int = 0
    charged_milli_s: int = 0
    submitted: int = 0
    started: int = 0
    wait_s: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    timed_out: int = 0
    stopped: int = 0
    known_milli_s: int = 0
    used_milli_s: int = 0
    idle_s: int = 0
    idled: int = 0
    waits: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Use) -> Use:
        return _sum(self, other)


@dataclass(frozen=True)
class CardUse:
    """What became of one card on one day.

    `touched_s`: how long anybody held any of it; `held_mib_s`: what was held of its memory. `known_s`: how
    long its use was measured, `used_milli_s`: how long it was busy then.
    """

    touched_s: int = 0
    held_mib_s: int = 0
    known_s: int = 0
    used_milli_s: int = 0

    def __add__(self, other: CardUse) -> CardUse:
        return _sum(self, other)


@dataclass(frozen=True)
class DayUse:
    """All use of one day, [start, end): from one local midnight to the next."""

    start: int
    end: int
    uses: Mapping[Key, Use] = field(default_factory=dict)
    cards: Mapping[str, CardUse] = field(default_factory=dict)

    def joined(self, other: DayUse) -> DayUse:
        """Return this day with what another account of it knows besides."""
        return DayUse(self.start, self.end, _merged(self.uses, other.uses), _merged(self.cards, other.cards))


def midnight(zone: ZoneInfo, moment: int) -> int:
    """Return when the local day of a moment began."""
    day = datetime.fromtimestamp(moment, zone).date()
    return int(datetime.combine(day, time(), zone).timestamp())


def days_between(zone: ZoneInfo, start: int, until: int) -> list[int]:
    """Return `start`, and each later local midnight up to the first one that is not before `until`."""
    edges = [start]
    while edges[-1] < until:
        day = datetime.fromtimestamp(edges[-1], zone).date() + timedelta(days=1)
        edges.append(int(datetime.combine(day, time(), zone).timestamp()))
    return edges


def rounded(wait: int) -> int:
    """Return a wait as it is remembered: to two significant figures."""
    grain = int(10 ** max(0, len(str(wait)) - 2))
    return (wait + grain // 2) // grain * grain


def use_of_days(
    jobs: Iterable[Job],
    sessions: Iterable[SessionRecord],
    leases: Iterable[LeaseRecord],
    edges: Sequence[int],
    now: int,
) -> list[DayUse]:
    """Return what the records say of each day between two neighbours of `edges`.

    A lease counts from its request until it is free (or `now`), whatever its work did then.
    """
    days = [_Day() for _ in edges[:-1]]
    for job in jobs:
        if (day := _at(days, edges, job.submitted)) is not None:
            day.count((job.group, job.owner, "job"), "submitted")
        if job.ended is not None and (day := _at(days, edges, job.ended)) is not None:
            day.count((job.group, job.owner, "job"), job.state.value)
    submitted = {job.id: job.submitted for job in jobs}
    for session in sessions:
        submitted[session.id] = session.submitted
        if (day := _at(days, edges, session.submitted)) is not None:
            day.count((session.group, session.owner, "session"), "submitted")
    for lease in leases:
        key = (lease.group, lease.owner, lease.kind)
        if lease.attempt == 1 and (day := _at(days, edges, lease.requested)) is not None:
            day.waited(key, lease.requested - submitted.get(lease.work, lease.requested))
        if lease.cause and lease.asked is not None and (day := _at(days, edges, lease.asked)) is not None:
            day.count(key, "stopped")
        end = now if lease.freed is None else lease.freed
        for number, first, last in _cut(edges, lease.requested, end):
            days[number].held(key, lease, first, last)
    return [day.use(edges[number], edges[number + 1]) for number, day in enumerate(days)]


class _Day:
    """One day while it is added up."""

    def __init__(self) -> None:
        self._counts: dict[Key, Counter[str]] = {}
        self._waits: dict[Key, Counter[int]] = {}
        self._spans: dict[str, list[tuple[int, int]]] = {}
        self._mib: Counter[str] = Counter()

    def count(self, key: Key, what: str, amount: int = 1) -> None:
        self._counts.setdefault(key, Counter())[what] += amount

    def waited(self, key: Key, seconds: int) -> None:
        self.count(key, "started")
        self.count(key, "wait_s", max(0, seconds))
        self._waits.setdefault(key, Counter())[rounded(max(0, seconds))] += 1

    def held(self, key: Key, lease: LeaseRecord, first: int, last: int) -> None:
        milli_s = lease.placement.gpu_milli * (last - first)
        self.count(key, "gpu_milli_s", milli_s)
        self.count(key, "charged_milli_s", milli_s * lease.charge_milli // 1000)
        for share in lease.placement.gpus:
            self._spans.setdefault(share.uuid, []).append((first, last))
            self._mib[share.uuid] += share.mib * (last - first)

    def use(self, start: int, end: int) -> DayUse:
        uses = {
            key: Use(**found, waits=dict(self._waits.get(key, {}))) for key, found in self._counts.items()
        }
        cards = {uuid: CardUse(_length(spans), self._mib[uuid]) for uuid, spans in self._spans.items()}
        return DayUse(start, end, uses, cards)


def _at(days: Sequence[_Day], edges: Sequence[int], moment: int) -> _Day | None:
    number = bisect_right(edges, moment) - 1
    return days[number] if 0 <= number < len(days) else None


def _cut(edges: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the parts of an interval that lie in the days, with the days' numbers."""
    for number in range(max(0, bisect_right(edges, start) - 1), len(edges) - 1):
        first, last = max(start, edges[number]), min(end, edges[number + 1])
        if edges[number] >= end:
            return
        if first < last:
            yield number, first, last


def _length(spans: Iterable[tuple[int, int]]) -> int:
    """Return how much time the spans cover together."""
    covered, reached = 0, 0
    for first, last in sorted(spans):
        covered += max(0, last - max(first, reached))
        reached = max(reached, last)
    return covered


Sum = TypeVar("Sum", Use, CardUse)


def _sum(one: Sum, other: Sum) -> Sum:
    values: dict[str, Any] = {}
    for part in fields(one):
        left, right = getattr(one, part.name), getattr(other, part.name)
        values[part.name] = dict(Counter(left) + Counter(right)) if part.name == "waits" else left + right
    return type(one)(**values)


Name = TypeVar("Name")


def _merged(one: Mapping[Name, Sum], other: Mapping[Name, Sum]) -> dict[Name, Sum]:
    found = dict(one)
    for name, value in other.items():
        found[name] = found[name] + value if name in found else value
    return found
