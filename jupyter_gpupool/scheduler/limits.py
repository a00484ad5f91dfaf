"""What people may have at once: quotas, limits, budgets, and the limits of users, classes, arrays, the host.

Owns: the caps that bound a work and those in which a claim counts, and a profile for each on the timeline,
made when it is first asked for; who is inside quota, and who is above it.
Never: cards and nodes (`floor`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from jupyter_gpupool.scheduler import quota
from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.estate import Estate
from jupyter_gpupool.scheduler.lines import (
    CHARGE_UNIT,
    Booking,
    Cap,
    Claim,
    Entry,
    Kept,
    Line,
    Purse,
    Reach,
    Scope,
)
from jupyter_gpupool.scheduler.model import (
    Kind,
    Lease,
    Placement,
    Reason,
    Seconds,
    Snapshot,
    UserLimits,
    Work,
)
from jupyter_gpupool.scheduler.recall import Recall
from jupyter_gpupool.scheduler.roster import Turnover
from jupyter_gpupool.scheduler.timeline import BEGIN, FOREVER, Profile
from jupyter_gpupool.scheduler.tree import Accounts, Span

Held = tuple[Claim, Placement, Seconds]


class Booked(NamedTuple):
    """What a claim takes over [start, end), so many `times`, beside the leases of the snapshot."""

    claim: Claim
    placement: Placement
    start: Seconds
    end: Seconds
    times: int


class ClaimKey(NamedTuple):
    """What claims have in common that count in the same caps and are bounded by the same ones.

    `lasting` is a job that cannot be stopped and lasts longer than one that borrows may; `length` is how
    long it lasts where a budget pays for that.
    """

    kind: Kind
    group: str
    user: str
    priority: str
    lasting: bool
    array: int | None
    array_limit: int | None
    length: Seconds


class Limits:
    """All caps of one snapshot, until it is turned to the next."""

    def __init__(self, snapshot: Snapshot, now: Seconds) -> None:
        self.estate = Estate(snapshot)
        self.groups = self.estate.groups
        self.resources = self.estate.resources
        self.trees = self.estate.trees
        self.ends = Ends(snapshot, now)
        self._now = now
        self._snapshot = snapshot
        self._borrow_time = snapshot.settings.borrow_max_time
        self._models = self.estate.models
        self._keys: Recall[ClaimKey] = Recall()
        self._counted: dict[ClaimKey, tuple[Line, ...]] = {}
        self._ceilings: dict[ClaimKey, dict[str, int]] = {}
        self._potentials: dict[str, dict[str, int]] = {}
        self._bounds: dict[ClaimKey, tuple[Line, ...]] = {}
        self._personal_lines: dict[ClaimKey, tuple[Line, ...]] = {}
        self._shared: dict[tuple[Kind, str, bool], tuple[Line, ...]] = {}
        self._profiles: dict[tuple[Scope, str], Profile] = {}
        self._booked: dict[tuple[int, int, Seconds, Seconds], Booked] = {}
        self._started: list[Held] = []
        self._all: dict[int, Held] = {}
        self._by_group: dict[str, dict[int, Held]] = {}
        self._by_user: dict[str, dict[int, Held]] = {}
        self._by_branch: dict[str, dict[int, Held]] = {}
        self._accounts = {
            name: Accounts(tree, partial(self._spans, name)) for name, tree in self.trees.items()
        }
        for lease in snapshot.leases:
            self._note((lease, lease.placement, self.end_of(lease)))

    def serves_also(self, snapshot: Snapshot, now: Seconds, new: Iterable[Lease]) -> bool:
        """Say whether another snapshot, with these `new` leases, is of the same pool and rules."""
        mine = self._snapshot
        return (
            self._now <= now
            and mine.users is snapshot.users
            and mine.priorities is snapshot.priorities
            and mine.windows is snapshot.windows
            and mine.settings is snapshot.settings
            and mine.budgets.keys() == snapshot.budgets.keys()
            and self.estate.of(snapshot, new)
        )

    def turn_to(
        self, snapshot: Snapshot, now: Seconds, turnover: Turnover, kept: Iterable[Booking] = ()
    ) -> None:
        """Count the leases of a later snapshot, and of what was booked only what is `kept`."""
        keys = {(id(claim), id(placement), start, end) for claim, placement, start, end in kept}
        for key in [key for key in self._booked if key not in keys]:
            claim, placement, start, end, times = self._booked.pop(key)
            self._count(claim, placement, start, end, -times)
        for held in self._started:
            self._note(held, -1)
        self._started.clear()
        self._keys.trim(len(snapshot.waiting))
        self._snapshot, self._now = snapshot, now
        self.ends.turn_to(now)
        self._drop_budgets()
        for lease in turnover.gone:
            held = self._all[lease.id]
            self._count(held[0], held[1], BEGIN, held[2], -1)
            self._note(held, -1)
        for lease in turnover.come:
            end = self.end_of(lease)
            self._count(lease, lease.placement, BEGIN, end, 1)
            self._note((lease, lease.placement, end))

    def _drop_budgets(self) -> None:
        """Forget what is bounded by a budget: what is spent of it is not what it was."""
        if self._snapshot.budgets:
            known: tuple[dict[ClaimKey, Any], ...] = (self._bounds, self._counted, self._ceilings)
            for found in known:
                for key in [key for key in found if self.is_paid(key.group)]:
                    del found[key]
            for name in self._snapshot.budgets:
                self._profiles.pop((Scope(name), "budget"), None)

    def end_of(self, lease: Lease) -> Seconds:
        """Return when a lease is expected to end."""
        return self.ends.of(lease)

    def of_user(self, group: str, user: str) -> UserLimits:
        """Return what one user of a group may hold: the group's limits, with the user's own above them."""
        general = self.groups[group].user
        own = self._snapshot.users.get(user)
        return general if own is None else own.over(general)

    # -- who is inside quota

    def upward(self, group: str) -> tuple[str, ...]:
        """Return a group and its ancestors below the pool, from the group up."""
        return self.estate.upward(group)

    def subtree(self, group: str) -> Mapping[str, int]:
        """Return what a group owns with what those below it lend, of each resource that it names."""
        return {name: tree.subtree(group) for name, tree in self.trees.items() if tree.home(group) == group}

    def potential(self, group: str, resource: str) -> int:
        """Return the most that a group could ever hold of a resource, with nobody else about."""
        tree = self.trees.get(resource)
        home = tree.home(group) if tree else quota.ROOT
        return tree.potential(home) if tree and home != quota.ROOT else quota.UNBOUNDED

    def inside(self, group: str, amounts: Mapping[str, int]) -> bool:
        """Say whether a group that takes `amounts` more now is inside quota in all that it is owed."""
        return all(
            self._accounts[name].profile(group).at(self._now) >= amounts[name]
            for name in self.groups[group].quota.quota
        )

    def excess(self, group: str) -> Mapping[str, int]:
        """Return by how much a group is above what it owns now, of each resource where it is."""
        left = {
            name: self._accounts[name].profile(group).at(self._now)
            for name, tree in self.trees.items()
            if tree.home(group) == group
        }
        return {name: -amount for name, amount in left.items() if amount < 0}

    def is_above(self, group: str) -> bool:
        """Say whether a group, one above it or all together are, at some time, to use more than they own."""
        return any(
            free < 0
            for accounts in self._accounts.values()
            for profile in accounts.counted(group)
            for _, _, free in profile.levels(self._now, FOREVER)
        )

    def may_borrow(self, work: Work) -> bool:
        """Say whether a job may take more than its group owns: if it can be stopped, or is short."""
        return work.resumable or work.limit <= self._borrow_time

    # -- what bounds a work, and what a claim counts in

    def key(self, claim: Claim) -> ClaimKey:
        """Return what `bounds` of a work, and the lines in which a claim counts, depend on."""
        if isinstance(claim, Lease):
            lasting = claim.kind == "job" and not claim.resumable
            whose = claim.kind, claim.group, claim.user, claim.priority
            return ClaimKey(*whose, lasting, claim.array, claim.array_limit, 0)
        found = self._keys.of(claim)
        if found is None:
            lasting = claim.kind == "job" and not self.may_borrow(claim)
            length = claim.limit if self.is_paid(claim.group) else 0
            whose = claim.kind, claim.group, claim.user, claim.priority
            found = ClaimKey(*whose, lasting, claim.array, claim.array_limit, length)
            self._keys.keep(claim, found)
        return found

    def ceilings(self, key: ClaimKey) -> Mapping[str, int]:
        """Return the most of each resource that such a work could ever take, with nobody else about."""
        found = self._ceilings.get(key)
        if found is None:
            found = self._ceilings[key] = dict(self._group_ceilings(key.group, owed=_lasts(key)))
            caps = [(cap.resource, cap.capacity) for cap in self._personal(key)]
            caps += [(quota.GPU, purse.affords(key.length)) for purse in self._budgets(key)]
            for name, most in caps:
                found[name] = min(most, found.get(name, most))
        return found

    def _group_ceilings(self, group: str, *, owed: bool) -> Mapping[str, int]:
        if owed:
            return self.groups[group].quota.quota
        found = self._potentials.get(group)
        if found is None:
            found = self._potentials[group] = {name: self.potential(group, name) for name in self.trees}
        return found

    def bounds(self, work: Work) -> tuple[Line, ...]:
        """Return the lines that bound a work, in the order in which they are reasons to wait."""
        key = self.key(work)
        found = self._bounds.get(key)
        if found is None:
            found = self._bounds[key] = tuple(self._bounds_of(key))
        return found

    def above(self, group: str) -> Iterator[tuple[str, str, Profile, Kept]]:
        """Yield the accounts in which what a group takes counts, each with what those below it keep."""
        for name, accounts in self._accounts.items():
            tree = accounts.tree
            kept: Kept = []
            for node in tree.upward(tree.home(group)):
                profile = accounts.profile(node)
                yield name, node, profile, kept
                if node != quota.ROOT and (local := tree.local(node)):
                    kept = [*kept, (profile, tree.subtree(node) - local, local)]

    def profiles(self, claim: Claim) -> list[Profile]:
        """Return every profile in which a claim may count."""
        found = [line.profile for line in self._lines(claim)]
        for accounts in self._accounts.values():
            found += accounts.counted(claim.group)
        return found

    def early(self, claim: Claim) -> list[tuple[Seconds, Profile]]:
        """Return the profiles in which a claim stops to count before its end, and how long before."""
        return [(line.early, line.profile) for line in self._lines(claim) if line.early]

    def amounts(self, claim: Claim, placement: Placement) -> dict[str, int]:
        """Return what a claim takes there of each resource that a cap counts."""
        return {name: self._taken(name, claim, placement) for name in self.resources}

    def hold(self, claim: Claim, placement: Placement, end: Seconds) -> None:
        """Count a claim that has started, until `end`."""
        self.book(claim, placement, BEGIN, end, 1)
        self._started.append((claim, placement, end))
        self._note(self._started[-1])

    def book(self, claim: Claim, placement: Placement, start: Seconds, end: Seconds, sign: int) -> None:
        """Count a claim over [start, end); `sign` -1 gives it back."""
        key = id(claim), id(placement), start, end
        known = self._booked.pop(key, None)
        times = sign + (known.times if known else 0)
        if times:
            self._booked[key] = Booked(claim, placement, start, end, times)
        self._count(claim, placement, start, end, sign)

    def _count(self, claim: Claim, placement: Placement, start: Seconds, end: Seconds, sign: int) -> None:
        request, milli, model = claim.request, placement.gpu_milli, self._model(placement)
        for line in self._lines(claim):
            line.book(sign * quota.amount(line.cap.resource, request, milli, model), start, end)
        for name, accounts in self._accounts.items():
            taken = quota.amount(name, request, milli, model)
            if taken:
                accounts.book(claim.group, start, end, sign * taken)

    def next_end(self, line: Line) -> Seconds | None:
        """Return when some of a line is expected to be free again: an end there, or a new period."""
        if isinstance(line, Purse):
            end = line.period_end(self._now)
            return None if end == FOREVER else end
        cap = line.cap
        counts = partial(self._below, cap.owner) if isinstance(line, Reach) else cap.scope.counts
        ends = [
            end - line.early
            for claim, placement, end in self._holders(cap.scope)
            if counts(claim) and self._taken(cap.resource, claim, placement)
        ]
        return min((end for end in ends if end > self._now), default=None)

    # -- the caps

    def _lines(self, claim: Claim) -> tuple[Line, ...]:
        """Return the lines in which a claim counts, the accounts of groups apart."""
        key = self.key(claim)
        found = self._counted.get(key)
        if found is None:
            own = *self._own(key), *self._budgets(key), *self._slots(key)
            found = self._counted[key] = (*own, *(self._lasting(key) if _lasts(key) else ()))
        return found

    def _bounds_of(self, key: ClaimKey) -> Iterator[Line]:
        yield from self._own(key)
        yield from self._of_group(key)
        yield from self._budgets(key)
        yield from self._slots(key)

    def _own(self, key: ClaimKey) -> tuple[Line, ...]:
        """Return the lines of the user, of the class and of the array."""
        found = self._personal_lines.get(key)
        if found is None:
            found = self._personal_lines[key] = tuple(map(self._line, self._personal(key)))
        return found

    def _of_group(self, key: ClaimKey) -> tuple[Line, ...]:
        """Return what bounds all such works of a group: its quota, or how far it may reach beyond it."""
        whose = key.kind, key.group, key.lasting
        found = self._shared.get(whose)
        if found is None:
            lines = [*self._lasting(key)] if _lasts(key) else []
            if key.kind == "job":
                lines += self._owned(key.group) if key.lasting else ()
                lines += self._reaches(key.group)
            found = self._shared[whose] = tuple(lines)
        return found

    def _personal(self, key: ClaimKey) -> Iterator[Cap]:
        """Yield the limits of the user, of the class and of the array."""
        limits = self.of_user(key.group, key.user)
        member = f"{key.user} in {key.group}"
        if limits.gpu_milli is not None:
            scope = Scope(key.group, key.user)
            yield Cap(scope, quota.GPU, limits.gpu_milli, Reason.USER_LIMIT, "gpus", member)
        many = limits.sessions if key.kind == "session" else limits.running_jobs
        if many is not None:
            what = "sessions" if key.kind == "session" else "running_jobs"
            scope = Scope(key.group, key.user, key.kind)
            yield Cap(scope, quota.COUNT, many, Reason.USER_LIMIT, what, member)
        cls = self._snapshot.priorities.get(key.priority)
        if key.kind == "job" and cls is not None and cls.running_jobs is not None:
            scope = Scope(user=key.user, kind="job", priority=key.priority)
            yield Cap(scope, quota.COUNT, cls.running_jobs, Reason.USER_LIMIT, "priority", cls.name)
        if key.array is not None and key.array_limit is not None:
            scope = Scope(key.group, key.user, array=key.array)
            yield Cap(scope, quota.COUNT, key.array_limit, Reason.ARRAY_LIMIT, "array", str(key.array))

    def _lasting(self, key: ClaimKey) -> Iterator[Line]:
        """Yield what a group's sessions may hold with its jobs that cannot be stopped: its quota."""
        scope = Scope(group=key.group, lasting=True)
        for name, owed in self.groups[key.group].quota.quota.items():
            cap = Cap(scope, name, owed, Reason.GROUP_QUOTA, "lasting", key.group)
            yield self._line(cap, self._early(scope, key.kind))

    def _owned(self, group: str) -> Iterator[Line]:
        """Yield what keeps a job from borrowing."""
        for name in self.groups[group].quota.quota:
            owned = self.trees[name].subtree(group)
            cap = Cap(Scope(group), name, owned, Reason.GROUP_QUOTA, "owned", group)
            yield Entry(cap, self._accounts[name].profile(group))

    def _reaches(self, group: str) -> Iterator[Line]:
        """Yield the limits of the group and of those above it, and what all others lend."""
        for name, node, profile, kept in self.above(group):
            tree = self.trees[name]
            limit, owned = tree.limit(node), tree.subtree(node)
            if limit != quota.UNBOUNDED:
                what = "lent" if node == quota.ROOT else "limit"
                cap = Cap(Scope(), name, limit, Reason.GROUP_QUOTA, what, node)
                line = Reach(cap, profile, limit - owned, kept) if kept else None
                yield line or Line(cap, profile, limit - owned)

    def _budgets(self, key: ClaimKey) -> Iterator[Purse]:
        """Yield the budgets of the group and of those above it."""
        if not self._snapshot.budgets:
            return
        cls = self._snapshot.priorities.get(key.priority)
        charge = CHARGE_UNIT if cls is None else cls.charge_milli
        for name in self.upward(key.group):
            budget = self._snapshot.budgets.get(name)
            if budget is not None:
                cap = Cap(Scope(), quota.GPU, CHARGE_UNIT * budget.capacity, Reason.BUDGET, "budget", name)
                yield Purse(cap, self._purse(name), budget.ends, charge, self._now)

    def _slots(self, key: ClaimKey) -> Iterator[Line]:
        """Yield how many jobs the host runs at once."""
        settings = self._snapshot.settings
        if key.kind == "job" and settings.slots is not None:
            scope = Scope(kind="job")
            yield self._line(
                Cap(scope, quota.COUNT, settings.slots, Reason.RESOURCES, "slots", settings.host)
            )

    # -- their profiles

    def _line(self, cap: Cap, early: Seconds = 0) -> Line:
        key = cap.scope, cap.resource
        profile = self._profiles.get(key)
        if profile is None:
            profile = self._profiles[key] = Profile(cap.capacity)
            for claim, placement, end in self._holders(cap.scope):
                until = end - self._early(cap.scope, claim.kind)
                if cap.scope.counts(claim) and until > BEGIN:
                    profile.book(BEGIN, until, self._taken(cap.resource, claim, placement))
        return Line(cap, profile, early=early)

    def _purse(self, group: str) -> Profile:
        """Return what is left of a group's budget, once all that runs below it has reached its end."""
        key = Scope(group), "budget"
        found = self._profiles.get(key)
        if found is None:
            budget = self._snapshot.budgets[group]
            spent = CHARGE_UNIT * budget.spent
            found = self._profiles[key] = Profile(CHARGE_UNIT * budget.capacity - spent)
            if budget.ends:
                found.book(budget.ends[0], FOREVER, -spent)
            for claim, placement, end in self._by_branch.get(group, {}).values():
                for line in self._budgets(self.key(claim)):
                    if line.cap.owner == group:
                        line.book(placement.gpu_milli, BEGIN, end)
        return found

    def _early(self, scope: Scope, kind: str) -> Seconds:
        """Return how long before its end a claim no longer counts: for as long as a job may borrow."""
        return self._borrow_time if scope.lasting and kind == "job" else 0

    def is_paid(self, group: str) -> bool:
        """Say whether a budget pays for what a group takes."""
        budgets = self._snapshot.budgets
        return bool(budgets) and any(name in budgets for name in self.upward(group))

    def _below(self, group: str, claim: Claim) -> bool:
        return group == quota.ROOT or group in self.upward(claim.group)

    def _note(self, held: Held, sign: int = 1) -> None:
        """Take note of who holds something; `sign` -1: no more."""
        claim = held[0]
        id_ = claim.id if isinstance(claim, Lease) else -claim.id
        books = [
            self._all,
            self._by_group.setdefault(claim.group, {}),
            self._by_user.setdefault(claim.user, {}),
        ]
        if self._snapshot.budgets:
            books += [self._by_branch.setdefault(name, {}) for name in self.upward(claim.group)]
        for book in books:
            if sign > 0:
                book[id_] = held
            else:
                del book[id_]

    def _spans(self, resource: str, group: str) -> Iterator[Span]:
        for claim, placement, end in self._by_group.get(group, {}).values():
            taken = self._taken(resource, claim, placement)
            if taken:
                yield BEGIN, end, taken

    def _holders(self, scope: Scope) -> Iterable[Held]:
        if scope.group:
            return self._by_group.get(scope.group, {}).values()
        return (self._by_user.get(scope.user, {}) if scope.user else self._all).values()

    def _taken(self, resource: str, claim: Claim, placement: Placement) -> int:
        return quota.amount(resource, claim.request, placement.gpu_milli, self._model(placement))

    def _model(self, placement: Placement) -> str:
        return self._models.get(placement.gpus[0].uuid, "") if placement.gpus else ""


def _lasts(key: ClaimKey) -> bool:
    return key.kind == "session" or key.lasting
