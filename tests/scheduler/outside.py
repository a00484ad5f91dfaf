"""A pool and one plan as anybody could see them: with nothing of the scheduler but its values.

The quota tree is written here as the design writes it, and whether something fits is counted claim by claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from jupyter_gpupool.scheduler.model import (
    Gpu,
    GpuShare,
    Group,
    Lease,
    Lend,
    Placement,
    Plan,
    Quota,
    Request,
    Snapshot,
    Stop,
    Work,
)

POOL, GPU = "pool", "gpu_milli"
NEVER = 1 << 60


def as_lease(work: Work, placement: Placement, start: int) -> Lease:
    """Write down a start as the ledger does."""
    return Lease(
        id=work.id,
        work=work.id,
        kind=work.kind,
        user=work.user,
        group=work.group,
        priority=work.priority,
        request=work.request,
        placement=placement,
        start=start,
        end=start + work.limit,
        whole=work.request.gpus > 0,
        resumable=work.resumable,
        grace=work.grace,
        array=work.array,
        array_limit=work.array_limit,
    )


class Tree:
    """The quota tree of one resource; groups that do not name it count in the next above."""

    def __init__(self, groups: Mapping[str, Group], resource: str, total: int) -> None:
        self.resource = resource
        self.groups = {
            name: group
            for name, group in groups.items()
            if resource == GPU
            or any(
                resource in (named or {})
                for named in (group.quota.quota, group.quota.limit, group.quota.lend)
            )
        }
        self.above = groups
        self.total = total

    def quota(self, name: str) -> int:
        if name == POOL:
            return max(0, self.total - sum(self.quota(group) for group in self.groups))
        return self.groups[name].quota.quota.get(self.resource, 0)

    def home(self, name: str) -> str | None:
        """Return where a group's use is counted: nowhere if none above it names the resource."""
        while name not in self.groups:
            if name not in self.above:
                return None
            name = self.above[name].parent
        return name

    def parent(self, name: str) -> str:
        return self.home(self.groups[name].parent) or POOL

    def children(self, name: str) -> list[str]:
        return [child for child in self.groups if self.parent(child) == name]

    def subtree(self, name: str) -> int:
        return self.quota(name) + sum(self.subtree(one) - self.local(one) for one in self.children(name))

    def local(self, name: str) -> int:
        lend = (self.groups[name].quota.lend or {}).get(self.resource)
        return 0 if lend is None else max(0, self.subtree(name) - lend)

    def usage(self, name: str, own: Mapping[str, int]) -> int:
        mine = sum(amount for group, amount in own.items() if self.home(group) == name)
        return mine + sum(max(0, self.usage(one, own) - self.local(one)) for one in self.children(name))

    def available(self, name: str, own: Mapping[str, int]) -> int:
        usage = self.usage(name, own)
        if name == POOL:
            return self.subtree(name) - usage
        local, limit = self.local(name), (self.groups[name].quota.limit or {}).get(self.resource, NEVER)
        reach = self.subtree(name) - local - max(0, usage - local) + limit - self.subtree(name)
        return max(0, local - usage) + min(self.available(self.parent(name), own), reach)

    def left(self, group: str, own: Mapping[str, int], *, pool: bool = True) -> int:
        """Return what a group may have, if need be by borrowing; without `pool`: were there more cards."""
        home = self.home(group)
        tree = self if pool else copy(self)
        tree.total += 0 if pool else NEVER
        return NEVER if home is None else tree.available(home, own)

    def excess(self, name: str, own: Mapping[str, int]) -> int:
        """Return by how much a group uses more than it owns with those below it."""
        return self.usage(name, own) - self.subtree(name) if name in self.groups else 0


@dataclass(frozen=True, eq=False)
class Seen:
    """A pool at one moment, what was decided there, and what has happened since the decision before.

    `news` are words: ``policy``, ``nodes``, ``extension``, ``clock`` (stepped back), ``sloppy`` (nobody
    looked for a while).
    """

    snapshot: Snapshot
    plan: Plan
    now: int
    news: frozenset[str] = frozenset()

    # -- what there is

    @cached_property
    def cards(self) -> dict[str, Gpu]:
        return {gpu.uuid: gpu for gpu in self.snapshot.gpus}

    @cached_property
    def works(self) -> dict[int, Work]:
        return {work.id: work for work in self.snapshot.waiting}

    @cached_property
    def leases(self) -> dict[int, Lease]:
        return {lease.id: lease for lease in self.snapshot.leases}

    @cached_property
    def begun(self) -> list[Lease]:
        """The leases that the plan makes, in its order."""
        return [as_lease(self.works[one.work], one.placement, self.now) for one in self.plan.starts]

    @cached_property
    def promised(self) -> dict[int, Lease]:
        """The promises of the plan, as leases to come."""
        return {
            one.work: as_lease(self.works[one.work], one.placement, one.start) for one in self.plan.promises
        }

    @cached_property
    def groups(self) -> dict[str, Group]:
        """The groups; one that has work and is in no policy is owed nothing and reaches nothing."""
        names = {one.group for one in (*self.snapshot.waiting, *self.snapshot.leases)}
        nothing = Quota({GPU: 0}, limit={GPU: 0})
        return {name: Group(name, POOL, nothing) for name in names} | dict(self.snapshot.groups)

    @cached_property
    def resources(self) -> set[str]:
        named = (
            one
            for group in self.groups.values()
            for one in (group.quota.quota, group.quota.limit, group.quota.lend)
        )
        return {GPU, *(name for one in named for name in one or ())}

    @cached_property
    def trees(self) -> dict[str, Tree]:
        return {name: Tree(self.groups, name, self.total(name)) for name in self.resources}

    def total(self, resource: str) -> int:
        if resource == "cpus_milli":
            often = max(one.cpu_overcommit_milli for one in self.snapshot.partitions.values())
            return sum(node.cpus_milli for node in self.snapshot.nodes) * often // 1000
        if resource == "memory_mib":
            return sum(node.memory_mib for node in self.snapshot.nodes)
        return 1000 * sum(is_of(gpu, resource) for gpu in self.snapshot.gpus)

    # -- claims

    def amounts(self, claim: Lease) -> dict[str, int]:
        """Return what a claim takes of each resource that groups are owed."""
        placed = claim.placement
        gpu = self.cards.get(placed.gpus[0].uuid) if placed.gpus else None
        values = {"cpus_milli": claim.request.cpus_milli, "memory_mib": claim.request.memory_mib}
        return {
            name: values.get(name, placed.gpu_milli if name == GPU or (gpu and is_of(gpu, name)) else 0)
            for name in self.resources
        }

    def own(self, claims: Iterable[Lease], resource: str) -> Counter[str]:
        """Sum what groups hold."""
        sums: Counter[str] = Counter()
        for claim in claims:
            sums[claim.group] += self.amounts(claim)[resource]
        return sums

    def lend(self, claim: Lease) -> Lend | None:
        """Return the terms on which a job has lent cards."""
        partition = self.snapshot.partitions[claim.placement.partition]
        return partition.lend if claim.kind == "job" and "job" not in partition.kinds else None

    def back(self, claim: Lease) -> int:
        """Return when a claim must have left lent cards."""
        lend = self.lend(claim)
        ends = [t1 for _, t1 in self.snapshot.windows[lend.window] if t1 > claim.start] if lend else []
        return min(ends, default=NEVER)

    def gone(self, claim: Lease, asked: Iterable[Stop] = ()) -> int:
        """Return when a claim is expected to be over, if the leases of `asked` are asked now."""
        end = self.due(claim)
        if claim.id in {stop.lease for stop in asked}:
            end = min(end, self.now + max(1, claim.grace))
        return max(end, self.now + 1)

    def due(self, claim: Lease) -> int:
        """Return when a claim must be over."""
        forced = NEVER if claim.asked is None else claim.asked + claim.grace
        return min(claim.end, self.back(claim), forced)

    def at(self, time: int, stops: Sequence[Stop], *, but: int) -> list[Lease]:
        """Return what is expected to hold something at a time, the work `but` apart."""
        coming = [*self.begun, *(one for one in self.promised.values() if one.start <= time)]
        lasting = [lease for lease in self.snapshot.leases if self.gone(lease, stops) > time]
        return [
            *lasting,
            *(one for one in coming if one.work != but and min(one.end, self.back(one)) > time),
        ]

    def takes(self, claim: Lease) -> Iterator[tuple[str, int]]:
        """Yield the cards that a claim occupies, and how much of each."""
        alone = claim.whole or self.lend(claim) is not None
        for share in claim.placement.gpus:
            yield share.uuid, self.cards[share.uuid].memory_mib if alone else share.mib

    def host_needs(self, claim: Lease) -> tuple[int, int]:
        """Return the real CPUs and the memory that a claim takes of each of its nodes."""
        often = self.snapshot.partitions[claim.placement.partition].cpu_overcommit_milli
        many = max(1, len(claim.placement.nodes))
        return -(-claim.request.cpus_milli * 1000 // (often * many)), -(-claim.request.memory_mib // many)

    def is_lasting(self, claim: Lease, time: int, *, new: bool = False) -> bool:
        """Say whether a claim counts beside sessions: one itself, or a job that cannot stop and lasts.

        A `new` one lasts for its limit.
        """
        if claim.kind == "session":
            return True
        left = claim.end - claim.start if new else self.gone(claim) - time
        return not claim.resumable and left > self.snapshot.settings.borrow_max_time

    # -- does it fit

    def lacks(self, claim: Lease, others: Sequence[Lease], time: int) -> list[str]:
        """Say what is too little for a claim that starts at a time beside others."""
        return [
            *self.machine_lacks(claim, others),
            *self.user_lacks(claim, others),
            *self.group_lacks(claim, others, time),
            *self.budget_lacks(claim, others),
        ]

    def machine_lacks(self, claim: Lease, others: Sequence[Lease]) -> Iterator[str]:
        for uuid, mib in self.takes(claim):
            there = [(one, taken) for one in others for card, taken in self.takes(one) if card == uuid]
            if sum(taken for _, taken in there) + mib > self.cards[uuid].memory_mib:
                yield f"card {uuid}"
            elif any(one.kind != claim.kind for one, _ in there):
                yield f"card {uuid}, which the other kind uses"
        nodes = {node.name: node for node in self.snapshot.nodes}
        for name in claim.placement.nodes:
            needs = [
                self.host_needs(one)
                for one in (claim, *others)
                if one is claim or name in one.placement.nodes
            ]
            if sum(cpus for cpus, _ in needs) > nodes[name].cpus_milli:
                yield f"CPUs of {name}"
            if sum(memory for _, memory in needs) > nodes[name].memory_mib:
                yield f"memory of {name}"

    def user_lacks(self, claim: Lease, others: Sequence[Lease]) -> Iterator[str]:
        limits, mine = self.groups[claim.group].user, [one for one in others if one.user == claim.user]
        here = [one for one in mine if one.group == claim.group]
        held = sum(one.placement.gpu_milli for one in here) + claim.placement.gpu_milli
        if limits.gpu_milli is not None and held > limits.gpu_milli:
            yield "the user's cards"
        most = limits.sessions if claim.kind == "session" else limits.running_jobs
        if most is not None and sum(one.kind == claim.kind for one in here) >= most:
            yield f"the user's {claim.kind}s"
        rank = self.snapshot.priorities[claim.priority].running_jobs
        alike = [one for one in mine if one.kind == "job" and one.priority == claim.priority]
        if claim.kind == "job" and rank is not None and len(alike) >= rank:
            yield "the user's jobs of this class"
        tasks = [one for one in here if claim.array is not None and one.array == claim.array]
        if claim.array_limit is not None and len(tasks) >= claim.array_limit:
            yield "the array's tasks at once"
        slots = self.snapshot.settings.slots
        if claim.kind == "job" and slots is not None and sum(one.kind == "job" for one in others) >= slots:
            yield "slots of the host"

    def group_lacks(
        self, claim: Lease, others: Sequence[Lease], time: int, *, pool: bool = True
    ) -> Iterator[str]:
        needs, group = self.amounts(claim), self.groups[claim.group]
        owed = {GPU: 0, **group.quota.quota}
        if self.is_lasting(claim, time, new=True):
            lasting = [one for one in others if one.group == claim.group and self.is_lasting(one, time)]
            for name, most in owed.items():
                if needs[name] and sum(self.amounts(one)[name] for one in lasting) + needs[name] > most:
                    yield f"{name} for what lasts"
        if claim.kind == "session":
            return
        for name, tree in self.trees.items():
            own = self.own(others, name)
            if needs[name] and needs[name] > tree.left(claim.group, own, pool=pool):
                yield f"{name} that the group may have"
            borrows = name in owed and tree.excess(claim.group, own) + needs[name] > 0
            if self.is_lasting(claim, time, new=True) and needs[name] and borrows:
                yield f"{name} that the group owns"

    def budget_lacks(self, claim: Lease, others: Sequence[Lease]) -> Iterator[str]:
        for name in self.chain(claim.group):
            budget = self.snapshot.budgets.get(name)
            if budget is not None and self.price(claim):
                bound = sum(self.price(one) for one in others if name in self.chain(one.group))
                if 1000 * budget.spent + bound + self.price(claim) > 1000 * budget.capacity:
                    yield f"budget of {name}"

    def price(self, claim: Lease) -> int:
        """Return what a claim has yet to pay until its end."""
        charge = self.snapshot.priorities[claim.priority].charge_milli
        if claim.id not in self.leases:
            return claim.placement.gpu_milli * charge * (claim.end - claim.start)
        return claim.placement.gpu_milli * charge * (self.gone(claim) - self.now)

    def chain(self, group: str) -> list[str]:
        """Return a group and those above it."""
        found = []
        while group in self.groups:
            found.append(group)
            group = self.groups[group].parent
        return found

    def is_inside(self, claim: Lease, others: Sequence[Lease], names: Iterable[str] | None = None) -> bool:
        """Say whether a group would be inside what it owns with a claim, of all or some that it is owed."""
        needs, owed = self.amounts(claim), {GPU: 0, **self.groups[claim.group].quota.quota}
        return all(
            self.trees[name].excess(claim.group, self.own(others, name)) + needs[name] <= 0
            for name in (owed if names is None else owed.keys() & set(names))
        )

    def value(self, one: Work | Lease) -> int:
        return self.snapshot.priorities[one.priority].value

    def could_be(self, work: Work) -> list[Lease]:
        """Return a claim for each sort of card that a work of up to one node could take, wherever that is.

        Cards that are away count only where all are.
        """
        nodes = {node.name: node.available for node in self.snapshot.nodes}
        present = [gpu for gpu in self.snapshot.gpus if gpu.available and nodes[gpu.node]]
        return self._could_be(work, present) or self._could_be(work, self.snapshot.gpus)

    def _could_be(self, work: Work, gpus: Sequence[Gpu]) -> list[Lease]:
        found = {}
        many = Counter((gpu.partition, gpu.model) for gpu in gpus)
        for gpu in gpus:
            if many[gpu.partition, gpu.model] < work.request.gpus:
                continue
            partition = self.snapshot.partitions[gpu.partition]
            serves = work.kind in partition.kinds or (work.kind == "job" and partition.lend is not None)
            if serves and suits(work.request, gpu):
                found[gpu.partition, gpu.model] = as_lease(work, placed(work.request, gpu), self.now)
        return list(found.values())


def is_of(gpu: Gpu, resource: str) -> bool:
    return resource == GPU or (
        resource.startswith(GPU + ".") and resource.split(".")[1] in gpu.model.casefold()
    )


def suits(request: Request, gpu: Gpu) -> bool:
    return not request.gpu_types or any(name in gpu.model.casefold() for name in request.gpu_types)


def placed(request: Request, gpu: Gpu) -> Placement:
    """Return what a request takes, as if all its cards were this one."""
    milli = 1000 * request.gpus
    if request.share:
        milli = 1000 * request.share[0] // request.share[1]
    elif request.gpu_mib:
        milli = -(-1000 * request.gpu_mib // gpu.memory_mib)
    return Placement((), (GpuShare(gpu.uuid, 0),) if milli else (), milli, gpu.partition)
