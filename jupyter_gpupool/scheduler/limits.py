"""What people may have at once: group quota, user limits, the limits of a priority, the host's slots.

Owns: the caps that a claim counts against, and a profile for each on the timeline, made when it is
first asked for. In this version a group's cap is its own quota; when groups may borrow, the caps of its
ancestors come beside it here.
Never: cards and nodes (`floor`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_gpupool.scheduler import quota
from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.model import (
    Group,
    Kind,
    Lease,
    Placement,
    Quota,
    Reason,
    Seconds,
    Snapshot,
    UserLimits,
    Work,
)
from jupyter_gpupool.scheduler.timeline import Profile

Claim = Work | Lease
ClaimKey = tuple[Kind, str, str, str]
Held = tuple[Claim, Placement, Seconds]


class Scope(NamedTuple):
    """Which claims a cap counts: those of a group or a user (or all), narrowed by what is not empty."""

    group: str = ""
    user: str = ""
    kind: str = ""
    priority: str = ""

    def counts(self, claim: Claim) -> bool:
        """Say whether `claim` counts here."""
        return (
            self.group in ("", claim.group)
            and self.user in ("", claim.user)
            and self.kind in ("", claim.kind)
            and self.priority in ("", claim.priority)
        )


class Cap(NamedTuple):
    """The most of one resource that a scope may hold, and the reason to wait when it is reached.

    `what` and `owner` name it in sentences.
    """

    scope: Scope
    resource: str
    capacity: int
    reason: Reason
    what: str
    owner: str


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A cap on the timeline."""

    cap: Cap
    profile: Profile


class Limits:
    """All caps of one snapshot."""

    def __init__(self, snapshot: Snapshot, now: Seconds) -> None:
        self.groups = quota.effective(snapshot.groups)
        claims = {work.group for work in snapshot.waiting} | {lease.group for lease in snapshot.leases}
        for name in claims - self.groups.keys():
            parent = "" if name == quota.POOL else quota.POOL
            self.groups[name] = Group(name, parent, Quota({quota.GPU: 0}))
        owed = {name for group in self.groups.values() for name in group.quota.quota}
        self.resources = [quota.COUNT, *sorted(owed)]
        self.ends = Ends(snapshot, now)
        self._snapshot = snapshot
        self._models = {gpu.uuid: gpu.model for gpu in snapshot.gpus}
        self._caps: dict[ClaimKey, tuple[Cap, ...]] = {}
        self._lines: dict[ClaimKey, tuple[Line, ...]] = {}
        self._profiles: dict[tuple[Scope, str], Profile] = {}
        self._all: list[Held] = []
        self._by_group: dict[str, list[Held]] = {}
        self._by_user: dict[str, list[Held]] = {}
        for lease in snapshot.leases:
            self._note(lease, lease.placement, self.end_of(lease))

    def end_of(self, lease: Lease) -> Seconds:
        """Return when a lease is expected to end."""
        return self.ends.of(lease)

    def of_user(self, group: str, user: str) -> UserLimits:
        """Return what one user of a group may hold: the group's limits, with the user's own above them."""
        general = self.groups[group].user
        own = self._snapshot.users.get(user)
        if own is None:
            return general
        return UserLimits(
            gpu_milli=general.gpu_milli if own.gpu_milli is None else own.gpu_milli,
            sessions=general.sessions if own.sessions is None else own.sessions,
            session_time=general.session_time if own.session_time is None else own.session_time,
            running_jobs=general.running_jobs if own.running_jobs is None else own.running_jobs,
            queued_jobs=general.queued_jobs if own.queued_jobs is None else own.queued_jobs,
            job_time=general.job_time if own.job_time is None else own.job_time,
        )

    def upward(self, group: str) -> tuple[str, ...]:
        """Return a group and its ancestors below the pool, from the group up."""
        chain: list[str] = []
        while group in self.groups and group not in chain:
            chain.append(group)
            group = self.groups[group].parent
        return tuple(chain)

    def subtree(self, group: str) -> Mapping[str, int]:
        """Return what a group owns of each resource with what those below it lend."""
        return {name: tree.subtree.get(group, 0) for name, tree in self._trees().items()}

    def inside(self, group: str, amounts: Mapping[str, int]) -> bool:
        """Say whether a group that takes `amounts` more now is inside quota in all that it names."""
        return all(
            tree.usage(self._held_now(name)).get(group, 0) + amounts[name] <= tree.subtree.get(group, 0)
            for name, tree in self._trees().items()
            if name in self.groups[group].quota.quota
        )

    def excess(self, group: str) -> Mapping[str, int]:
        """Return by how much a group is above what it owns now, of each resource where it is."""
        above = {
            name: tree.usage(self._held_now(name)).get(group, 0) - tree.subtree.get(group, 0)
            for name, tree in self._trees().items()
        }
        return {name: amount for name, amount in above.items() if amount > 0}

    def _trees(self) -> dict[str, quota.QuotaTree]:
        return {name: quota.QuotaTree(self.groups, name, 0) for name in self.resources if name != quota.COUNT}

    def _held_now(self, resource: str) -> dict[str, int]:
        held: dict[str, int] = {}
        for claim, placement, _ in self._all:
            held[claim.group] = held.get(claim.group, 0) + self._taken(resource, claim, placement)
        return held

    def caps(self, claim: Claim) -> tuple[Cap, ...]:
        """Return the caps that a claim counts against, in the order in which they are reasons to wait."""
        key = (claim.kind, claim.group, claim.user, claim.priority)
        found = self._caps.get(key)
        if found is None:
            found = self._caps[key] = tuple(self._caps_of(*key))
        return found

    def lines(self, claim: Claim) -> tuple[Line, ...]:
        """Return the same caps on the timeline."""
        key = (claim.kind, claim.group, claim.user, claim.priority)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = tuple(Line(cap, self._profile(cap)) for cap in self.caps(claim))
        return found

    def amounts(self, lease: Lease) -> dict[str, int]:
        """Return what a lease takes of each resource that a cap counts."""
        return {name: self._taken(name, lease, lease.placement) for name in self.resources}

    def hold(self, claim: Claim, placement: Placement, end: Seconds) -> None:
        """Count a claim that has started, until `end`."""
        self.book(claim, placement, 0, end, 1)
        self._note(claim, placement, end)

    def next_end(self, cap: Cap) -> Seconds | None:
        """Return when the first of those that hold some of a cap is expected to end."""
        ends = [
            end
            for claim, placement, end in self._holders(cap.scope)
            if cap.scope.counts(claim) and self._taken(cap.resource, claim, placement)
        ]
        return min(ends, default=None)

    def book(self, claim: Claim, placement: Placement, start: Seconds, end: Seconds, sign: int) -> None:
        """Count a claim over [start, end); `sign` -1 gives it back."""
        request, milli, model = claim.request, placement.gpu_milli, self._model(placement)
        for line in self.lines(claim):
            taken = quota.amount(line.cap.resource, request, milli, model)
            if taken:
                line.profile.book(start, end, sign * taken)

    def _caps_of(self, kind: Kind, group: str, user: str, priority: str) -> Iterable[Cap]:
        limits = self.of_user(group, user)
        member = f"{user} in {group}"
        mine = Scope(group=group, user=user)
        if limits.gpu_milli is not None:
            yield Cap(mine, quota.GPU, limits.gpu_milli, Reason.USER_LIMIT, "gpus", member)
        many = limits.sessions if kind == "session" else limits.running_jobs
        if many is not None:
            scope = Scope(group=group, user=user, kind=kind)
            what = "sessions" if kind == "session" else "running_jobs"
            yield Cap(scope, quota.COUNT, many, Reason.USER_LIMIT, what, member)
        cls = self._snapshot.priorities.get(priority)
        if kind == "job" and cls is not None and cls.running_jobs is not None:
            scope = Scope(user=user, kind="job", priority=priority)
            yield Cap(scope, quota.COUNT, cls.running_jobs, Reason.USER_LIMIT, "priority", priority)
        for resource, owed in self.groups[group].quota.quota.items():
            yield Cap(Scope(group=group), resource, owed, Reason.GROUP_QUOTA, resource, group)
        settings = self._snapshot.settings
        if kind == "job" and settings.slots is not None:
            yield Cap(
                Scope(kind="job"), quota.COUNT, settings.slots, Reason.RESOURCES, "slots", settings.host
            )

    def _profile(self, cap: Cap) -> Profile:
        key = cap.scope, cap.resource
        found = self._profiles.get(key)
        if found is None:
            found = self._profiles[key] = Profile(cap.capacity)
            for claim, placement, end in self._holders(cap.scope):
                if cap.scope.counts(claim):
                    found.book(0, end, self._taken(cap.resource, claim, placement))
        return found

    def _note(self, claim: Claim, placement: Placement, end: Seconds) -> None:
        held = claim, placement, end
        self._all.append(held)
        self._by_group.setdefault(claim.group, []).append(held)
        self._by_user.setdefault(claim.user, []).append(held)

    def _holders(self, scope: Scope) -> Iterable[Held]:
        if scope.group:
            return self._by_group.get(scope.group, ())
        return self._by_user.get(scope.user, ()) if scope.user else self._all

    def _taken(self, resource: str, claim: Claim, placement: Placement) -> int:
        return quota.amount(resource, claim.request, placement.gpu_milli, self._model(placement))

    def _model(self, placement: Placement) -> str:
        return self._models.get(placement.gpus[0].uuid, "") if placement.gpus else ""
