"""A small pool as the rules see it: every booking in one list, every question answered by looking through it.

Owns: what is free at each moment at which something begins; who may have it;
where and when work could start.
Never: who comes first and what is decided (`naive`); anything of the scheduler but its words (`model`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from jupyter_gpupool.scheduler.model import (
    Budget,
    Gpu,
    GpuShare,
    Group,
    Lease,
    Placement,
    PriorityClass,
    Quota,
    Reason,
    Snapshot,
    UserLimits,
    Work,
)
from tests.scheduler.naive_tree import POOL, Tree

GPU, CPUS, MEMORY = "gpu_milli", "cpus_milli", "memory_mib"
PLAIN = PriorityClass("normal", 0)
Claim = Work | Lease
Takes = Mapping[str, int]
Cap = tuple[Reason, int, Callable[[int], bool]]  # it holds at each moment until then


@dataclass(frozen=True)
class Booking:
    """What somebody has, or is to have, over [start, end)."""

    claim: Claim
    placement: Placement
    start: int
    end: int
    promised: bool = False


class Pool:
    """The pool with all that is booked on it."""

    def __init__(self, snapshot: Snapshot, now: int) -> None:
        self.snapshot, self.now = snapshot, now
        self.groups = {
            name: replace(group, quota=replace(group.quota, quota={GPU: 0, **group.quota.quota}))
            for name, group in snapshot.groups.items()
        }
        for name in {one.group for one in (*snapshot.waiting, *snapshot.leases)} - self.groups.keys():
            self.groups[name] = Group(name, POOL, Quota({GPU: 0}, limit={GPU: 0}))
        self._could: dict[object, bool] = {}
        self.model = {gpu.uuid: gpu.model for gpu in snapshot.gpus}
        quotas = [group.quota for group in self.groups.values()]
        named = {name for q in quotas for part in (q.quota, q.limit, q.lend) for name in part or ()}
        self.trees = {name: Tree(self.groups, name, self._total(name)) for name in sorted(named)}
        self.booked = [
            Booking(lease, lease.placement, lease.start, self.end_of(lease)) for lease in snapshot.leases
        ]

    def end_of(self, lease: Lease) -> int:
        """Return when a lease ends, asked to stop or not; one past its end is to end at once."""
        end = lease.end if lease.asked is None else min(lease.end, lease.asked + lease.grace)
        return max(end, self.now + 1)

    def _total(self, resource: str) -> int:
        if resource == CPUS:
            return sum(node.cpus_milli for node in self.snapshot.nodes)
        if resource == MEMORY:
            return sum(node.memory_mib for node in self.snapshot.nodes)
        return 1000 * sum(_is_type(gpu.model, resource) for gpu in self.snapshot.gpus)

    # -- what is asked for

    def upward(self, name: str) -> Iterator[str]:
        while name in self.groups:
            yield name
            name = self.groups[name].parent

    def cls(self, claim: Claim) -> PriorityClass:
        return self.snapshot.priorities.get(claim.priority, PLAIN)

    def user(self, work: Work) -> UserLimits:
        return self.groups[work.group].user

    def bays(self, work: Work) -> list[list[Gpu]]:
        """Return the cards that suit a work, those of one model together; one empty list: it needs none."""
        if not cards_of(work):
            return [[]]
        found: dict[str, list[Gpu]] = {}
        for gpu in sorted(self.snapshot.gpus, key=lambda gpu: (gpu.model, gpu.node, gpu.index)):
            if not work.request.gpu_types or any(_is_type(gpu.model, one) for one in work.request.gpu_types):
                found.setdefault(gpu.model, []).append(gpu)
        return list(found.values())

    def takes(self, claim: Claim, milli: int, model: str) -> Takes:
        whole = {GPU: milli, CPUS: claim.request.cpus_milli, MEMORY: claim.request.memory_mib}
        types = {name: milli * _is_type(model, name) for name in self.trees if name not in whole}
        return whole | types

    def measure(self, claim: Claim) -> Takes:
        """Return what a claim counts for: where it is, or would be first."""
        if isinstance(claim, Lease):
            return self.takes_at(claim, claim.placement)
        bay = next((bay for bay in self.bays(claim) if self.could_hold(claim, bay)), [])
        return self.takes(claim, milli_of(claim, bay), bay[0].model if bay else "")

    def takes_at(self, claim: Claim, placement: Placement) -> Takes:
        model = self.model.get(placement.gpus[0].uuid, "") if placement.gpus else ""
        return self.takes(claim, placement.gpu_milli, model)

    # -- what is free

    def moments(self, start: int, end: int) -> list[int]:
        """Return when less may be free than just before: at the start, and where something begins."""
        return sorted({start, *(one.start for one in self.booked if start < one.start < end)})

    def at(self, time: int) -> list[Booking]:
        return [one for one in self.booked if one.start <= time < one.end]

    def held(self, resource: str, time: int) -> dict[str, int]:
        found: Counter[str] = Counter()
        for one in self.at(time):
            found[one.claim.group] += self.takes_at(one.claim, one.placement).get(resource, 0)
        return found

    def card_room(self, gpu: Gpu, claim: Claim, start: int, end: int) -> int:
        """Return what stays free of a card for one kind of work."""

        def room(time: int) -> int:
            shares = ((one.claim, share) for one in self.at(time) for share in one.placement.gpus)
            return gpu.memory_mib - sum(
                share.mib if other.kind == claim.kind else gpu.memory_mib
                for other, share in shares
                if share.uuid == gpu.uuid
            )

        return min(map(room, self.moments(start, end)))

    def node_fits(self, node: str, work: Work, nodes: int, start: int, end: int) -> bool:
        host = next(one for one in self.snapshot.nodes if one.name == node)
        for time in self.moments(start, end):
            beside = [one for one in self.at(time) if node in one.placement.nodes]
            cpus = sum(-(-one.claim.request.cpus_milli // len(one.placement.nodes)) for one in beside)
            memory = sum(-(-one.claim.request.memory_mib // len(one.placement.nodes)) for one in beside)
            if cpus - (-work.request.cpus_milli // nodes) > host.cpus_milli:
                return False
            if memory - (-work.request.memory_mib // nodes) > host.memory_mib:
                return False
        return True

    # -- who may have it

    def caps(self, work: Work, takes: Takes, end: int) -> Iterator[Cap]:
        """Yield all that bounds a work but the cards and nodes, in the order of the reasons."""
        limits, cls, borrow = self.user(work), self.cls(work), self.snapshot.settings.borrow_max_time

        def mine(one: Booking) -> bool:
            return (one.claim.user, one.claim.group) == (work.user, work.group)

        def alike(one: Booking) -> bool:
            return mine(one) and one.claim.kind == work.kind

        def of_class(one: Booking) -> bool:
            return (one.claim.user, one.claim.priority, one.claim.kind) == (work.user, work.priority, "job")

        def below(most: int, need: int, of: Callable[[Booking], int]) -> Callable[[int], bool]:
            return lambda time: sum(map(of, self.at(time))) + need <= most

        if limits.gpu_milli is not None and takes[GPU]:
            held = below(limits.gpu_milli, takes[GPU], lambda one: one.placement.gpu_milli * mine(one))
            yield Reason.USER_LIMIT, end, held
        many = limits.sessions if work.kind == "session" else limits.running_jobs
        if many is not None:
            yield Reason.USER_LIMIT, end, below(many, 1, alike)
        if work.kind == "job" and cls.running_jobs is not None:
            yield Reason.USER_LIMIT, end, below(cls.running_jobs, 1, of_class)
        if work.array is not None and work.array_limit is not None:
            tasks = below(work.array_limit, 1, lambda one: mine(one) and one.claim.array == work.array)
            yield Reason.ARRAY_LIMIT, end, tasks
        yield from self._quota_caps(work, takes, end, borrow)
        slots = self.snapshot.settings.slots
        if work.kind == "job" and slots is not None:
            yield Reason.RESOURCES, end, below(slots, 1, lambda one: one.claim.kind == "job")

    def _quota_caps(self, work: Work, takes: Takes, end: int, borrow: int) -> Iterator[Cap]:
        lasts = work.kind == "session" or self.is_long(work)
        for name, tree in self.trees.items():
            need, home = takes[name], tree.home(work.group)
            if not need:
                continue
            owed = self.groups[work.group].quota.quota.get(name)

            def stays(time: int, name: str = name, need: int = need, owed: int | None = owed) -> bool:
                """Sessions and jobs that cannot be stopped, for longer than may be borrowed, fit in quota."""
                held = sum(
                    self.takes_at(one.claim, one.placement)[name]
                    for one in self.at(time)
                    if one.claim.group == work.group
                    and (one.claim.kind == "session" or (not one.claim.resumable and time < one.end - borrow))
                )
                return owed is None or held + need <= owed

            def owns(time: int, name: str = name, need: int = need, tree: Tree = tree) -> bool:
                used = tree.usage(work.group, self.held(name, time))
                return used + need <= tree.subtree(work.group)

            def reaches(time: int, name: str = name, need: int = need, tree: Tree = tree) -> bool:
                return need <= tree.available(tree.home(work.group), self.held(name, time))

            if lasts:
                yield Reason.GROUP_QUOTA, end - (borrow if work.kind == "job" else 0), stays
            if work.kind == "job" and lasts and owed is not None:
                yield Reason.GROUP_QUOTA, end - work.limit + 1, owns
            if work.kind == "job" and home != POOL:
                yield Reason.GROUP_QUOTA, end, reaches

    def is_only_full(self, work: Work, takes: Takes) -> bool:
        """Say whether no limit is reached, and groups share as much as there is: all that lacks is in use."""
        for name, tree in self.trees.items():
            if not takes[name] or tree.home(work.group) == POOL:
                continue
            shares_all = tree.subtree(POOL) >= tree.total
            full = Tree(self.groups, name, tree.total + 10**9) if shares_all else tree
            held = self.held(name, self.now)
            if takes[name] > full.available(full.home(work.group), held):
                return False
        return True

    def is_long(self, work: Work) -> bool:
        """Say whether a job may not borrow: it cannot be stopped, and is long."""
        is_job = work.kind == "job" and not work.resumable
        return is_job and work.limit > self.snapshot.settings.borrow_max_time

    def budgets(self, work: Work) -> list[tuple[str, Budget]]:
        known = self.snapshot.budgets
        return [(name, known[name]) for name in self.upward(work.group) if name in known]

    def affords(self, work: Work, takes: Takes, start: int, last: int | None = None) -> bool:
        """Say whether all budgets pay for a start then; of this period's, what begins up to `last` counts."""
        for name, budget in self.budgets(work):
            first, ends = _period(budget, start)
            spent = 1000 * budget.spent if start < min(budget.ends, default=start + 1) else 0
            for one in self.booked:
                begun = max(one.start, self.now)
                counts = first <= begun < ends and (last is None or begun <= last)
                if counts and name in self.upward(one.claim.group):
                    price = self.cls(one.claim).charge_milli
                    spent += one.placement.gpu_milli * (one.end - begun) * price
            if spent + takes[GPU] * work.limit * self.cls(work).charge_milli > 1000 * budget.capacity:
                return False
        return True

    def gate(self, work: Work, time: int) -> bool:
        return time >= work.not_before and self.in_window(work, time)

    def in_window(self, work: Work, time: int) -> bool:
        windows = self.snapshot.windows.get(work.window or "", ())
        return work.window is None or any(first <= time < last for first, last in windows)

    def allows(self, work: Work, takes: Takes, start: int, end: int) -> bool:
        return (
            self.affords(work, takes, start)
            and self.spares(work, takes, start, end)
            and all(
                holds(time)
                for _, last, holds in self.caps(work, takes, end)
                for time in (self.moments(start, last) if last > start else [])
            )
        )

    def spares(self, work: Work, takes: Takes, start: int, end: int) -> bool:
        """Say whether a job leaves alone what is promised to those that may not borrow.

        It may be about when one of them starts only if that one's group is inside quota with it.
        """
        for one in self.booked if work.kind == "job" else ():
            spans = start < one.start < end or start == one.start == self.now
            if one.promised and spans and self.is_long(one.claim):
                group, promised = one.claim.group, self.takes_at(one.claim, one.placement)
                for name in filter(promised.get, self.groups[group].quota.quota):
                    held, tree = self.held(name, one.start), self.trees[name]
                    more = {**held, work.group: held.get(work.group, 0) + takes[name]}
                    if tree.usage(group, more) > max(tree.subtree(group), tree.usage(group, held)):
                        return False
        return True

    # -- where

    def place(self, work: Work, start: int, wish: Placement | None = None) -> Placement | None:
        """Find cards for all of a work's time from `start` on; those wished for, if they are free."""
        for bay in self._open_bays(work, start):
            if wish is not None and self._is_free(work, bay, wish, start):
                return wish
            found = self._choose(work, bay, start, start + work.limit)
            if found is not None:
                return found
        return None

    def holds(self, work: Work, placement: Placement, start: int) -> bool:
        """Say whether a work may start then, just there."""
        return any(self._is_free(work, bay, placement, start) for bay in self._open_bays(work, start))

    def _open_bays(self, work: Work, start: int) -> Iterator[list[Gpu]]:
        """Yield the cards that a work may have from `start` on, if they are free."""
        for bay in self.bays(work) if self.gate(work, start) else ():
            takes = self.takes(work, milli_of(work, bay), bay[0].model if bay else "")
            if self.could_ever(work, bay, takes) and self.allows(work, takes, start, start + work.limit):
                yield bay

    def _is_free(self, work: Work, bay: list[Gpu], wish: Placement, start: int) -> bool:
        end = start + work.limit
        uuids = {share.uuid for share in wish.gpus}
        cards = [gpu for gpu in bay if gpu.uuid in uuids]
        return (
            len(cards) == len(uuids)
            and bool(uuids) == bool(bay)
            and all(self.card_room(gpu, work, start, end) >= mib_of(work, gpu) for gpu in cards)
            and all(self.node_fits(node, work, len(wish.nodes), start, end) for node in wish.nodes)
        )

    def _choose(self, work: Work, bay: list[Gpu], start: int, end: int) -> Placement | None:
        free = [gpu for gpu in bay if self.card_room(gpu, work, start, end) >= mib_of(work, gpu)]
        nodes = list(dict.fromkeys(gpu.node for gpu in bay)) or [node.name for node in self.snapshot.nodes]
        by_node = {node: [gpu for gpu in free if gpu.node == node] for node in nodes}
        of_node = Counter(gpu.node for gpu in bay)
        wanted = cards_of(work)
        if wanted > max(of_node.values(), default=wanted):
            whole = [node for node in nodes if len(by_node[node]) == of_node[node]]
            many = wanted // max(of_node.values())
            whole = [node for node in whole if self.node_fits(node, work, many, start, end)]
            taken = _exactly(whole, of_node, wanted)
            return taken and _placement(work, [gpu for node in taken for gpu in by_node[node]], taken)
        fits = [node for node in nodes if self.node_fits(node, work, 1, start, end)]
        fits = [node for node in fits if len(by_node[node]) >= wanted]
        if not fits:
            return None
        if not wanted:
            return _placement(work, [], fits[:1])
        if not work.request.gpus:
            cards = [gpu for node in fits for gpu in by_node[node]]
            best = min(cards, key=lambda gpu: self.card_room(gpu, work, start, start + 1))
            return _placement(work, [best], [best.node])
        node = min(fits, key=lambda node: len(by_node[node]))
        return _placement(work, by_node[node][:wanted], [node])

    def could_hold(self, work: Work, bay: list[Gpu]) -> bool:
        """Say whether the cards and their nodes are enough, with nobody else about."""
        key = work.request, tuple(gpu.uuid for gpu in bay)
        if key not in self._could:
            alone = Pool(replace(self.snapshot, leases=(), waiting=()), self.now)
            self._could[key] = alone._choose(work, bay, self.now, self.now + 1) is not None
        return self._could[key]

    def could_ever(self, work: Work, bay: list[Gpu], takes: Takes) -> bool:
        return self.could_hold(work, bay) and within(self.most(work), takes)

    def possible(self, work: Work) -> bool:
        """Say whether a work could ever run, with nobody else about."""
        limits, cls = self.user(work), self.cls(work)
        longest = limits.session_time if work.kind == "session" else limits.job_time
        if longest is not None and work.limit > longest:
            return False
        if cls.groups is not None and work.group not in cls.groups:
            return False
        if 0 in (limits.sessions if work.kind == "session" else limits.running_jobs, cls.running_jobs):
            return False
        return any(
            self.could_ever(work, bay, self.takes(work, milli_of(work, bay), bay[0].model if bay else ""))
            for bay in self.bays(work)
        )

    def most(self, work: Work) -> dict[str, float]:
        """Return the most of each resource that a work could take with nobody else about."""
        limits, group = self.user(work), self.groups[work.group]
        if work.kind == "session" or self.is_long(work):
            most: dict[str, float] = dict(group.quota.quota)
        else:
            homes = {name: tree.home(work.group) for name, tree in self.trees.items()}
            most = {n: self.trees[n].potential(home) for n, home in homes.items() if home != POOL}
        gpus = [most.get(GPU, inf), inf if limits.gpu_milli is None else limits.gpu_milli]
        price = work.limit * self.cls(work).charge_milli
        gpus += [1000 * budget.capacity // price for _, budget in self.budgets(work)]
        return {**most, GPU: min(gpus)}

    # -- when

    def times(self, work: Work) -> Iterable[int]:
        """Return when something may become possible: ends, edges of windows and periods, promised starts, and
        the second after one that is promised for now."""
        borrow = self.snapshot.settings.borrow_max_time
        ends = {one.end for one in self.booked} | {one.end - borrow for one in self.booked}
        edges = {first for first, _ in self.snapshot.windows.get(work.window or "", ())}
        periods = {end for _, budget in self.budgets(work) for end in budget.ends}
        starts = {one.start for one in self.booked if one.promised}
        if self.now in starts:
            starts.add(self.now + 1)
        found = {self.now, work.not_before, *ends, *starts, *edges, *periods}
        return sorted(time for time in found if time >= self.now)

    def inside(self, group: str, takes: Takes, time: int | None = None) -> bool:
        """Say whether a group that takes so much more is inside quota in all that it is owed."""
        time = self.now if time is None else time
        return all(
            self.trees[name].usage(group, self.held(name, time)) + takes[name]
            <= self.trees[name].subtree(group)
            for name in self.groups[group].quota.quota
        )


def within(most: Mapping[str, float], takes: Takes) -> bool:
    return all(takes.get(name, 0) <= many for name, many in most.items())


def _is_type(model: str, name: str) -> bool:
    return name.removeprefix(GPU).removeprefix(".").casefold() in model.casefold()


def cards_of(work: Work) -> int:
    request = work.request
    return request.gpus or int(bool(request.gpu_mib or request.share))


def mib_of(work: Work, gpu: Gpu) -> int:
    if work.request.gpus:
        return gpu.memory_mib
    if work.request.share:
        return gpu.memory_mib * work.request.share[0] // work.request.share[1]
    return work.request.gpu_mib


def milli_of(work: Work, bay: list[Gpu]) -> int:
    if work.request.gpus or not bay:
        return 1000 * work.request.gpus
    if work.request.share:
        return 1000 * work.request.share[0] // work.request.share[1]
    return -(-1000 * work.request.gpu_mib // bay[0].memory_mib)


def _placement(work: Work, cards: list[Gpu], nodes: list[str]) -> Placement:
    shares = tuple(GpuShare(gpu.uuid, mib_of(work, gpu)) for gpu in cards)
    return Placement(tuple(nodes), shares, milli_of(work, cards), "training")


def _exactly(nodes: list[str], cards: Mapping[str, int], wanted: int) -> list[str] | None:
    """Choose whole nodes that have exactly so many cards."""
    if not wanted or not nodes:
        return None if wanted else []
    first, *rest = nodes
    without = _exactly(rest, cards, wanted)
    if without is not None or cards[first] > wanted:
        return without
    others = _exactly(rest, cards, wanted - cards[first])
    return None if others is None else [first, *others]


def _period(budget: Budget, time: int) -> tuple[float, float]:
    return max([end for end in budget.ends if end <= time], default=-inf), min(
        [end for end in budget.ends if end > time], default=inf
    )
