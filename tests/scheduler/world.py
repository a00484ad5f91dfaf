"""A small pool that lives: work comes and ends, people and administrators do things, the scheduler decides.

Every decision is checked from the outside (`outside`) before it is carried out as a ledger and engines would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from jupyter_gpupool.scheduler.model import (
    Budget,
    Gpu,
    Group,
    Lease,
    Lend,
    Node,
    Partition,
    Plan,
    PriorityClass,
    Promise,
    Quota,
    Reason,
    Request,
    Reservation,
    Settings,
    Snapshot,
    Stop,
    Usage,
    UserLimits,
    Work,
)
from jupyter_gpupool.scheduler.moments import next_moment
from jupyter_gpupool.scheduler.plan import fill, plan
from tests.scheduler.invariants import faults
from tests.scheduler.outside import Seen, as_lease

GIB = 1024
NIGHT = tuple((start, start + 600) for start in range(600, 200_000, 2400))
CLASSES = {
    "low": PriorityClass("low", -100, 500),
    "normal": PriorityClass("normal", 0),
    "high": PriorityClass("high", 100, 2000, running_jobs=2),
    "urgent": PriorityClass("urgent", 1000, 4000, groups=frozenset({"a", "b"}), preempts=True),
}
AGEING = (Reason.RECLAIMING, Reason.PRIORITY, Reason.RESOURCES)


def cards(partition: str, node: str, model: str, gib: int) -> list[Gpu]:
    return [Gpu(f"{node}-{index}", node, index, model, gib * GIB, partition) for index in range(2)]


GPUS = (
    *cards("development", "node1", "SIM A100", 32),
    *cards("training", "node2", "SIM A100", 32),
    *cards("training", "node3", "SIM A100", 32),
    *cards("training", "node4", "SIM H100", 64),
)
NODES = (*(Node(f"node{number}", 24_000, 256 * GIB) for number in range(1, 5)), Node("bare", 8_000, 64 * GIB))


def group(name: str, cards: float | None, parent: str = "pool", limit=None, lend=None, **more) -> Group:
    amounts = (
        None if amount is None else {"gpu_milli": round(1000 * amount)} for amount in (cards, limit, lend)
    )
    quota, limit, lend = amounts
    return Group(
        name, parent, Quota({**(quota or {}), **more}, limit, lend), user=LIMITS.get(name, UserLimits())
    )


LIMITS = {"a": UserLimits(gpu_milli=4000, running_jobs=3, sessions=2)}
POLICIES: Mapping[str, tuple[Group, ...]] = {
    "plain": (
        group("a", 3, limit=5, lend=1),
        group("a1", 1, parent="a", lend=0.5),
        group("a2", 1, parent="a", cpus_milli=4000),
        group("b", 2, limit=4, **{"gpu_milli.h100": 1000}),
        group("c", None),
    ),
    "lowered": (
        group("a", 1, limit=5, lend=0),
        group("a1", 0, parent="a"),
        group("a2", 1, parent="a", cpus_milli=2000),
        group("b", 1, limit=2),
        group("c", 4, lend=2),
    ),
    "fewer": (group("a", 4), group("b", 4, lend=3), group("a2", 1, parent="b", limit=2)),
}


@dataclass
class Task:
    """What a work still has to do, how long it clings to its cards at an end, how often it was stopped."""

    left: int
    late: int = 0
    stops: int = 0


@dataclass
class World:
    """One pool, from second 0 on."""

    partitions: Mapping[str, Partition]
    settings: Settings
    budget: int | None = None
    now: int = 0
    number: int = 0
    policy: str = "plain"
    works: dict[int, Work] = field(default_factory=dict)
    known: dict[int, Work] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    tasks: dict[int, Task] = field(default_factory=dict)
    promises: tuple[Promise, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    windows: tuple[tuple[int, int], ...] = NIGHT
    away: frozenset[str] = frozenset()
    usage: dict[tuple[str, str], int] = field(default_factory=dict)
    spent: int = 0
    news: set[str] = field(default_factory=set)
    waited: dict[int, int] = field(default_factory=dict)
    stopped: int = 0

    # -- as it is

    def snapshot(self) -> Snapshot:
        by_group: dict[str, int] = {}
        for (name, _), nano in self.usage.items():
            by_group[name] = by_group.get(name, 0) + nano
        budgets = {} if self.budget is None else {"a": Budget(self.budget, self.spent, (10**7,))}
        return Snapshot(
            nodes=tuple(replace(node, available=node.name not in self.away) for node in NODES),
            gpus=tuple(replace(gpu, available=gpu.uuid not in self.away) for gpu in GPUS),
            partitions=self.partitions,
            groups={one.name: one for one in POLICIES[self.policy]},
            users={},
            priorities=CLASSES,
            windows={"night": self.windows},
            waiting=tuple(sorted(self.works.values(), key=lambda work: (work.submitted, work.id))),
            leases=tuple(self.leases.values()),
            promises=self.promises,
            usage=Usage(by_group, dict(self.usage)),
            settings=self.settings,
            budgets=budgets,
            reservations=tuple(one for one in self.reservations if one.end > self.now),
        )

    def copy(self) -> World:
        """Return a world that goes its own way from here."""
        other = copy(self)
        for name in ("works", "known", "leases", "usage", "waited"):
            setattr(other, name, dict(getattr(self, name)))
        other.tasks = {id_: copy(task) for id_, task in self.tasks.items()}
        other.news = set(self.news)
        return other

    # -- what happens

    def submit(self, kind: str, request: Request, limit: int, task: Task, **more) -> Work:
        self.number += 1
        work = Work(id=self.number, kind=kind, limit=limit, request=request, submitted=self.now, **more)
        self.works[work.id], self.tasks[work.id] = work, task
        return work

    def over_at(self, lease: Lease) -> int:
        """Return when a lease is over in truth."""
        task = self.tasks[lease.work]
        done = lease.start + task.left
        forced = lease.end if lease.asked is None else min(lease.end, lease.asked + lease.grace)
        return done if done <= forced else forced + task.late

    def end(self, lease: Lease) -> None:
        """Take a lease back; who was stopped for others waits again."""
        del self.leases[lease.id]
        task = self.tasks[lease.work]
        finished = lease.start + task.left <= self.now
        if lease.asked is not None and not finished and lease.asked + lease.grace < lease.end:
            task.stops += 1
            task.left -= max(0, lease.asked - lease.start)
            rest = min(60 * 2 ** (task.stops - 1), 1800)
            self.works[lease.work] = replace(self.known[lease.work], not_before=self.now + rest)
        else:
            self.gone(lease.work)

    def gone(self, id_: int) -> None:
        """Work is over: what comes after it need not wait for it any more."""
        self.works.pop(id_, None)
        for other in self.works.values():
            if id_ in other.after:
                after = tuple(one for one in other.after if one != id_)
                self.works[other.id] = replace(other, after=after)

    def wait(self, seconds: int, *, quickly: bool = False) -> None:
        """Let time pass; the scheduler is asked whenever something ends or changes by itself."""
        until = self.now + seconds
        while self.now < until:
            moment = next_moment(self.snapshot(), self.now)
            ends = [self.over_at(lease) for lease in self.leases.values()]
            self.pass_to(min([until, *(time for time in [moment, *ends] if time and time > self.now)]))
            self.decide(quickly=quickly)

    def pass_to(self, time: int) -> None:
        """Let time pass until then, and what is due end."""
        before, self.now = self.now, time
        for lease in self.leases.values():
            charge, held = CLASSES[lease.priority].charge_milli, min(time, self.over_at(lease)) - before
            paid = lease.placement.gpu_milli * charge * max(0, held)
            key = lease.group, lease.user
            self.usage[key] = self.usage.get(key, 0) + paid * 1000 * 1000 // (7 * 86400)
            if lease.group in ("a", "a1") or (lease.group == "a2" and self.policy != "fewer"):
                self.spent += paid // 1000
        for lease in [lease for lease in self.leases.values() if self.over_at(lease) <= time]:
            self.end(lease)

    # -- what is decided

    def decide(self, *, quickly: bool = False) -> Seen:
        """Ask the scheduler, check what it says, carry it out."""
        snapshot = self.snapshot()
        found = (fill if quickly else plan)(snapshot, self.now)
        seen = Seen(snapshot, found, self.now, frozenset(self.news))
        wrong = [one for one in faults(seen) if not (quickly and one.startswith("7:"))]
        assert not wrong, wrong
        self.news.clear()
        self.carry_out(found, seen)
        return seen

    def carry_out(self, found: Plan, seen: Seen) -> None:
        for start in found.starts:
            self.known[start.work] = work = self.works.pop(start.work)
            self.leases[work.id] = as_lease(work, start.placement, self.now)
        for stop in found.stops:
            self.ask(stop)
        self.promises = found.promises
        self.grow_older(found)

    def ask(self, stop: Stop) -> None:
        self.stopped += 1
        self.leases[stop.lease] = replace(self.leases[stop.lease], asked=self.now)

    def grow_older(self, found: Plan) -> None:
        for id_, verdict in found.verdicts.items():
            since = self.waited.pop(id_, None)
            if since is not None and self.now > since:
                self.works[id_] = replace(self.works[id_], age=self.works[id_].age + self.now - since)
            if verdict.reason in AGEING:
                self.waited[id_] = self.now

    def any_lease(self, number: int, kinds: Iterable[str] = ("session", "job")) -> Lease | None:
        found = [lease for lease in self.leases.values() if lease.kind in kinds]
        return found[number % len(found)] if found else None


def partitions(by_day: bool, headroom: int, settle: int, sessions: bool) -> dict[str, Partition]:
    lend = Lend("training", "night", by_day=by_day, headroom=headroom, slice=(1, 8), settle=settle)
    kinds = frozenset({"job", "session"} if sessions else {"job"})
    return {
        "development": Partition("development", frozenset({"session"}), 2000, lend),
        "training": Partition("training", kinds),
    }
