"""What could never run in this pool, whoever else is there.

Owns: the checks of a request against the cards, nodes, quotas and limits as a whole, with the numbers.
Never: what is free now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_gpupool.scheduler import quota
from jupyter_gpupool.scheduler.floor import Fit, Floor, Shape
from jupyter_gpupool.scheduler.limits import ClaimKey, Limits
from jupyter_gpupool.scheduler.lines import CHARGE_UNIT, Lack
from jupyter_gpupool.scheduler.model import Kind, Reason, Request, Seconds, Snapshot, Work
from jupyter_gpupool.scheduler.recall import Recall
from jupyter_gpupool.scheduler.timeline import FOREVER
from jupyter_gpupool.scheduler.words import amount_text, decimal, duration_text, size_text

EXCEEDS, NO_SUCH = "exceeds_limit", "no_such_gpu"

HOUR = 3600

Entry = tuple[Seconds, Mapping[str, int]]  # longest time, the most of each resource


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request could never run: `code` is ``exceeds_limit`` or ``no_such_gpu``."""

    code: str
    message: str
    used: int | None = None
    limit: int | None = None
    unit: str | None = None
    hint: str | None = None

    @property
    def reason(self) -> Reason:
        """Return the reason under which such work waits when it is in the queue already."""
        return Reason.NO_SUCH_GPU if self.code == NO_SUCH else Reason.EXCEEDS_LIMIT


class Feasibility:
    """Answers for many works; what equal requests share is checked once."""

    def __init__(self, snapshot: Snapshot, floor: Floor, limits: Limits) -> None:
        self._snapshot = snapshot
        self._floor = floor
        self._limits = limits
        self._bays = floor.everything()
        self._places: dict[Shape, Refusal | tuple[Fit, ...]] = {}
        self._entries: dict[ClaimKey, Refusal | Entry] = {}
        self._possible: Recall[bool] = Recall()

    def turn_to(self, snapshot: Snapshot) -> None:
        """Answer for a later snapshot under the same rules, in which budgets may be others."""
        self._snapshot = snapshot
        self._possible.trim(len(snapshot.waiting))
        if snapshot.budgets:
            self._entries = {key: entry for key, entry in self._entries.items() if not key.length}

    def possible(self, work: Work) -> bool:
        """Say whether `work` could ever run."""
        found = self._possible.of(work)
        if found is None:
            found = self._is_possible(work)
            if not self._limits.key(work).length:
                self._possible.keep(work, found)
        return found

    def _is_possible(self, work: Work) -> bool:
        entry, place = self._entry(work), self._place(work)
        if isinstance(entry, Refusal) or isinstance(place, Refusal):
            return False
        longest, most = entry
        return work.limit <= longest and any(within(fit.amounts, most) for fit in place)

    def problem(self, work: Work) -> Refusal | None:
        """Say why `work` could never run, or None when it could."""
        if self.possible(work):
            return None
        entry, place = self._entry(work), self._place(work)
        if isinstance(place, Refusal) and place.code == NO_SUCH:
            return place
        if isinstance(entry, Refusal):
            return entry
        if work.limit > entry[0]:
            return _too_long(work, entry[0])
        return place if isinstance(place, Refusal) else self._over_cap(work, place[0])

    def _entry(self, work: Work) -> Refusal | Entry:
        """Return why the owner could not submit anything at this priority, or what bounds each request."""
        key = self._limits.key(work)
        found = self._entries.get(key)
        if found is None:
            limits = self._limits.of_user(work.group, work.user)
            longest = limits.session_time if work.kind == "session" else limits.job_time
            entry = FOREVER if longest is None else longest, self._limits.ceilings(key)
            found = self._entries[key] = self._priority(work) or entry
        return found

    def _over_cap(self, work: Work, fit: Fit) -> Refusal:
        needs = (Lack(line, line.need(work, fit.amounts)) for line in self._limits.bounds(work))
        return next(_over(work, lack) for lack in needs if lack.need > lack.line.most)

    def _priority(self, work: Work) -> Refusal | None:
        known = self._snapshot.priorities
        cls = known.get(work.priority)
        if cls is None and known:
            hint = f"Choose one of: {', '.join(known)}."
            return Refusal(EXCEEDS, f"There is no priority {work.priority}.", hint=hint)
        if cls is not None and cls.groups is not None and work.group not in cls.groups:
            only = ", ".join(sorted(cls.groups)) or "nobody"
            message = f"Priority {cls.name} is for {only}; this is of group {work.group}."
            return Refusal(EXCEEDS, message, hint="Choose another priority.")
        return None

    def _place(self, work: Work) -> Refusal | tuple[Fit, ...]:
        """Return why no machine could hold this, or what it takes in each bay that could."""
        shape = self._floor.shape(work)
        found = self._places.get(shape)
        if found is None:
            key = work.kind, work.request
            found = self._places[shape] = self._partition(*key) or self._room(*key)
        return found

    def _partition(self, kind: Kind, request: Request) -> Refusal | None:
        partitions = self._snapshot.partitions
        asked = request.partition
        suitable = [name for name, partition in partitions.items() if partition.serves(kind)]
        if not suitable:
            return Refusal(NO_SUCH, f"No partition of this pool is for {kind}s.")
        if asked is None or asked in suitable:
            return None
        what = f"is not for {kind}s" if asked in partitions else "does not exist"
        return Refusal(NO_SUCH, f"Partition {asked} {what}.", hint=f"Choose one of: {', '.join(suitable)}.")

    def _room(self, kind: Kind, request: Request) -> Refusal | tuple[Fit, ...]:
        floor = self._floor
        fits = [floor.fit(request, bay) for bay in self._bays if floor.suits(kind, request, bay)]
        if not fits:
            return self._no_card(kind, request)
        roomy = tuple(fit for fit in fits if fit.bay.could_hold(fit.size))
        return roomy or _too_many_cards(request, fits) or _too_large(request, fits)

    def _no_card(self, kind: Kind, request: Request) -> Refusal:
        type_ = f" of type {' or '.join(request.gpu_types)}" if request.gpu_types else ""
        where = f"in partition {request.partition}" if request.partition else f"for {kind}s"
        models = sorted({bay.model for bay in self._bays if bay.memory})
        hint = f"The pool has: {', '.join(models)}." if models else "Ask for --gpus 0."
        return Refusal(NO_SUCH, f"There is no card{type_} {where}.", hint=hint)


def within(amounts: Mapping[str, int], most: Mapping[str, int]) -> bool:
    """Say whether no amount is above the most that there may be of it."""
    return all(amounts[name] <= limit for name, limit in most.items())


def _too_long(work: Work, longest: Seconds) -> Refusal:
    asked, most = duration_text(work.limit), duration_text(longest)
    message = f"A time limit of {asked} is more than a {work.kind} in {work.group} may have: {most}."
    return Refusal(EXCEEDS, message, work.limit, longest, "seconds", f"Ask for --time {most} or less.")


def _too_many_cards(request: Request, fits: Sequence[Fit]) -> Refusal | None:
    memory = max(fit.bay.memory for fit in fits)
    if not request.gpus and min(fit.size.mib for fit in fits) > memory:
        asked = min(fit.size.mib for fit in fits)
        message = f"{size_text(asked)} is more than a card has: {size_text(memory)}."
        return Refusal(EXCEEDS, message, asked, memory, "MiB", "Ask for whole cards with --gpus.")
    most = max(len(fit.bay.cards) for fit in fits)
    if request.gpus > most:
        message = f"{request.gpus} cards of one kind are more than there are: {most}."
        return Refusal(NO_SUCH, message, request.gpus, most, "gpus", f"Ask for at most {most}.")
    largest = max(fit.bay.largest for fit in fits)
    if request.gpus > largest and request.gpus % largest:
        message = f"More than {largest} cards are given as whole nodes of {largest}; {request.gpus} are not."
        return Refusal(NO_SUCH, message, request.gpus, largest, "gpus", f"Ask for a multiple of {largest}.")
    return None


def _too_large(request: Request, fits: Sequence[Fit]) -> Refusal:
    """Say which of CPUs and memory no node could give beside the cards."""
    fit = fits[0]
    sites = [site for each in fits for site in each.bay.sites]
    cpus = max((site.cpus.capacity for site in sites), default=0)
    memory = max((site.memory.capacity for site in sites), default=0)
    if fit.size.cpus > cpus:
        most = cpus * request.cpus_milli // fit.size.cpus
        asked = amount_text(quota.CPUS, request.cpus_milli)
        message = f"{asked} are more than a node could give: {amount_text(quota.CPUS, most)}."
        return Refusal(EXCEEDS, message, request.cpus_milli, most, "milli-CPU", "Ask for fewer with --cpus.")
    if fit.size.memory > memory:
        most = memory * request.memory_mib // fit.size.memory
        asked = amount_text(quota.MEMORY, request.memory_mib)
        message = f"{asked} is more than a node could give: {size_text(most)}."
        return Refusal(EXCEEDS, message, request.memory_mib, most, "MiB", "Ask for less with --mem.")
    beside = f"{amount_text(quota.CPUS, request.cpus_milli)} and {size_text(request.memory_mib)}"
    message = f"No node has {request.gpus or 'enough'} cards together with {beside}."
    return Refusal(NO_SUCH, message, hint="Ask for fewer cards, CPUs or less memory.")


def _over(work: Work, lack: Lack) -> Refusal:
    cap, need, limit = lack.line.cap, lack.need, lack.line.most
    if cap.resource == quota.COUNT:
        message = f"Even one {work.kind} is more than {cap.owner} may have at once: {limit}."
        return Refusal(EXCEEDS, message, need, limit, cap.resource, "Ask your administrator.")
    if cap.what == "budget":
        used, hours = _gpu_hours(need), _gpu_hours(limit)
        message = f"{used} GPU hours are more than group {cap.owner} has for a whole period: {hours}."
        return Refusal(EXCEEDS, message, need, limit, "milli-GPU seconds", "Ask for a shorter --time.")
    asked, most = amount_text(cap.resource, need), amount_text(cap.resource, limit)
    hint = f"Ask for at most {most}." if limit else "Ask your administrator."
    if cap.what == "gpus":
        message = f"{asked} is more than {cap.owner} may hold at once: {most}."
    elif cap.what == "lasting" and work.kind == "session":
        message = f"{asked} is more than a session of group {cap.owner} could ever have: its quota is {most}."
    elif cap.what in ("lasting", "owned"):
        message = f"{asked} is more than group {cap.owner} is owed, {most}, and a long job borrows nothing."
        hint = f"{hint[:-1]}; or let it be resumable, or shorter."
    elif cap.what == "limit":
        message = f"{asked} is more than group {cap.owner} could ever have: its limit is {most}."
    else:
        message = f"{asked} is more than all groups lend together with what group {work.group} keeps: {most}."
    return Refusal(EXCEEDS, message, need, limit, cap.resource, hint)


def _gpu_hours(milli_seconds: int) -> str:
    """Write an amount of a budget, in thousandths of milli-GPU seconds."""
    return decimal(milli_seconds // (CHARGE_UNIT * HOUR))
