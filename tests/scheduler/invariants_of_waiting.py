"""What the invariants say of one plan about what waits: its promises (6) and reasons (7).

Every check yields a sentence for each thing that is wrong; its docstring begins with the invariant's number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from jupyter_gpupool.scheduler.model import Lease, Promise, Reason, Work
from tests.scheduler.outside import Seen

CAUSES = (
    r"session (?P<session>\d+)",
    r"job (?P<inside>\d+) inside quota of \w+",
    r"job (?P<higher>\d+) of higher class \w+",
    r"reclaim for job (?P<taker>\d+) of \w+",
    r"late end of (?:job|session) (?P<late>\d+)",
    r"extension of (?:job|session) (?P<extended>\d+)",
    r"late start of job (?P<overdue>\d+)",
    r"(?P<back>hand-back) of \w+",
    r"(?P<card>card) .* (?:was lost|is not available)",
    r"(?:reservation|maintenance) (?P<reservation>\d+)",
    r"(?P<window>window) \w+ closed before it could start",
    r"(?P<rest>a stop or a failed start), after which it is tried again later",
    r"(?P<policy>policy change)",
)


# -- 6


def promises_move_for_a_cause_only(seen: Seen) -> Iterator[str]:
    """6: a promise of work that still waits is kept, or moves later for a named cause, which is true."""
    begun, kept = {one.work for one in seen.plan.starts}, {one.work: one for one in seen.plan.promises}
    moves = {move.work: move for move in seen.plan.moves}
    reasons = {id_: verdict.reason for id_, verdict in seen.plan.verdicts.items()}
    for promise in seen.snapshot.promises:
        work = seen.works.get(promise.work)
        if work is None or work.held or work.invalid or work.after or work.kind == "session":
            continue
        if work.id in begun or reasons.get(work.id) in (Reason.NO_SUCH_GPU, Reason.EXCEEDS_LIMIT):
            continue
        if work.id not in kept:
            if not (seen.news or seen.snapshot.budgets):  # no period that pays for it may come any more
                yield f"6: the promise of {work.id} is gone"
            continue
        if kept[work.id].start > max(promise.start, seen.now):
            move = moves.get(work.id)
            if move is None:
                yield f"6: the promise of {work.id} moves to {kept[work.id].start} unsaid"
            elif not is_true(seen, promise, move.cause):
                yield f"6: the promise of {work.id} moves from {move.was} to {move.now}: {move.cause}"


def is_true(seen: Seen, promise: Promise, cause: str) -> bool:
    """Say whether a cause is one of those that may move a promise, and holds."""
    match = next((found for known in CAUSES if (found := re.fullmatch(known, cause))), None)
    if match is None:
        return False
    kind, text = next(pair for pair in match.groupdict().items() if pair[1])
    work = seen.works[promise.work]
    id_ = int(text) if text.isdigit() else 0
    other = seen.works.get(id_)
    return _TRUTHS[kind](seen, promise, work, id_, other)


def _session(seen: Seen, promise: Promise, work: Work, id_: int, other: Work | None) -> bool:
    if other is not None:
        return other.kind == "session" and (
            id_ in seen.promised or id_ in {one.work for one in seen.plan.starts}
        )
    return id_ in seen.leases and seen.leases[id_].kind == "session"


def _inside(seen: Seen, promise: Promise, work: Work, id_: int, other: Work | None) -> bool:
    if other is None or other.group == work.group:
        return False
    held = seen.snapshot.leases
    borrows = any(not seen.is_inside(one, (*held, *seen.begun)) for one in seen.could_be(work))
    return borrows and any(seen.is_inside(one, held) for one in seen.could_be(other))


def _higher(seen: Seen, promise: Promise, work: Work, id_: int, other: Work | None) -> bool:
    if other is None:
        return False
    cls = seen.snapshot.priorities[other.priority]
    return cls.preempts or cls.charge_milli > 1000


def _taker(seen: Seen, promise: Promise, work: Work, id_: int, other: Work | None) -> bool:
    return other is not None and (id_ in seen.promised or id_ in {one.work for one in seen.plan.starts})


def _late(seen: Seen, promise: Promise, work: Work, id_: int, other: Work | None) -> bool:
    lease = seen.leases.get(id_)
    if lease is None:
        return False
    return seen.due(lease) <= seen.now


def _policy(seen: Seen, promise: Promise, work: Work, id_: int, other: Work | None) -> bool:
    """An extension on other cards cannot be told from a lower quota; a step of the clock lasts."""
    return promise.made > seen.now or bool(seen.news & {"policy", "extension", "clock"})


def _overdue(seen: Seen, promise: Promise, work: Work, id_: int, other: Work | None) -> bool:
    return any(one.work == id_ and one.start < seen.now for one in seen.snapshot.promises)


def _since(*news: str) -> Callable[..., bool]:
    return lambda seen, *_: bool(seen.news.intersection(news))


_TRUTHS: Mapping[str, Callable[[Seen, Promise, Work, int, Work | None], bool]] = {
    "session": _session,
    "inside": _inside,
    "higher": _higher,
    "taker": _taker,
    "late": _late,
    "extended": _since("extension", "clock"),
    "overdue": _overdue,
    "back": _since("sloppy", "clock"),
    "card": _since("nodes", "policy"),
    "reservation": lambda seen, promise, work, id_, other: (
        id_ in {one.id for one in seen.snapshot.reservations}
    ),
    "window": _since("sloppy", "clock"),
    "rest": lambda seen, promise, work, id_, other: work.not_before > promise.start,
    "policy": _policy,
}


def promises_can_be_kept(seen: Seen) -> Iterator[str]:
    """6: at the start of every promise its cards, CPUs and memory are free, as far as anybody knows."""
    for promise in seen.plan.promises:
        claim = seen.promised[promise.work]
        others = seen.at(promise.start, seen.plan.stops, but=promise.work)
        for lack in seen.machine_lacks(claim, others):
            yield f"6: {promise.work} is promised {promise.start}, without {lack}"


def promises_are_few(seen: Seen) -> Iterator[str]:
    """6: no more promises are given than the policy has, and a group's share of them."""
    carried = {one.work for one in seen.snapshot.promises}
    jobs = [seen.works[one.work] for one in seen.plan.promises if seen.works[one.work].kind == "job"]
    new = [work for work in jobs if work.id not in carried]
    soon = seen.now + max((lease.grace for lease in seen.snapshot.leases), default=0)
    given = [work for work in new if seen.promised[work.id].start > max(soon, seen.now + 1)]
    if given and len(jobs) > seen.snapshot.settings.promises + len(new) - len(given):
        yield f"6: {len(jobs)} promises"
    for group, many in Counter(work.group for work in jobs).items():
        most = seen.snapshot.settings.promises_per_group + len(new) - len(given)
        if many > most and any(work.group == group for work in given):
            yield f"6: {many} promises of {group}"


# -- 7


def all_that_waits_has_one_true_reason(seen: Seen) -> Iterator[str]:
    """7: all that waits has a reason, and it is the first that holds."""
    begun = {one.work for one in seen.plan.starts}
    if seen.plan.verdicts.keys() != seen.works.keys() - begun:
        yield f"7: {seen.plan.verdicts.keys() ^ (seen.works.keys() - begun)} have a reason or have none"
        return
    held = [*seen.snapshot.leases, *seen.begun]
    for id_, verdict in seen.plan.verdicts.items():
        told = misjudged(seen, seen.works[id_], verdict.reason, held)
        if told:
            yield f"7: {id_} waits under {verdict.reason}, but {told}"
        if verdict.promised != (id_ in seen.promised):
            yield f"7: {id_} says promised: {verdict.promised}"
    for kind in ("session", "job"):
        waiting = [one for id_, one in seen.plan.verdicts.items() if seen.works[id_].kind == kind]
        places = sorted(one.position for one in waiting if one.position is not None)
        if places != list(range(1, len(places) + 1)):
            yield f"7: the places of {kind}s are {places}"


def misjudged(seen: Seen, work: Work, reason: Reason, held: Sequence[Lease]) -> str:
    """Say what speaks against a reason."""
    windows = seen.snapshot.windows.get(work.window or "", ())
    closed = work.window is not None and not any(t0 <= seen.now < t1 for t0, t1 in windows)
    if work.held or work.invalid:
        return "" if reason is (Reason.HELD if work.held else Reason.INVALID) else "it is held or invalid"
    if reason in (Reason.NO_SUCH_GPU, Reason.EXCEEDS_LIMIT):
        return ""
    if work.after:
        return "" if reason is Reason.DEPENDENCY else "it comes after other work"
    if closed:
        return "" if reason is Reason.OUTSIDE_WINDOW else "its window is closed"
    if reason in (Reason.HELD, Reason.INVALID, Reason.DEPENDENCY, Reason.OUTSIDE_WINDOW):
        return "nothing of the kind"
    claims = seen.could_be(work)
    own = [set(seen.user_lacks(claim, held)) - {"slots of the host"} for claim in claims]
    limited = bool(own) and all(own)
    if limited != (reason in (Reason.USER_LIMIT, Reason.ARRAY_LIMIT)):
        return f"limits say {own}"
    if limited:
        return ""
    if (work.not_before > seen.now) != (reason is Reason.BACK_OFF):
        return "rest says otherwise"
    if reason in (Reason.BACK_OFF, Reason.UNAVAILABLE):
        return ""
    scarce = (
        reason is Reason.GROUP_QUOTA
    )  # that all cards are in use is no such reason, but may come with one
    due = [one for one in seen.promised.values() if one.start <= seen.now and one.work != work.id]
    beside = [*held, *(due if scarce else ())]
    shared = [list(seen.group_lacks(claim, beside, seen.now, pool=scarce)) for claim in claims]
    if reason is Reason.GROUP_QUOTA and not all(shared):
        return f"the group may have that: {shared}"
    if reason in (Reason.PRIORITY, Reason.RESOURCES, Reason.BUDGET) and shared and all(shared):
        inside = any(seen.is_inside(claim, held) for claim in claims)
        if not (reason is Reason.BUDGET and inside):
            return f"the group may not have that: {shared}"
    spent = [list(seen.budget_lacks(claim, held)) for claim in claims]
    if (reason is Reason.BUDGET and not all(spent)) or (
        reason in (Reason.PRIORITY, Reason.RESOURCES) and spent and all(spent)
    ):
        return f"budgets say {spent}"
    if reason is Reason.RECLAIMING and work.kind == "job":
        asked = {stop.taker for stop in seen.plan.stops}
        if work.id not in asked and not any(seen.is_inside(claim, held) for claim in claims):
            return "its group is not inside quota with it"
    return ""


WAITING: tuple[Callable[[Seen], Iterator[str]], ...] = (
    promises_move_for_a_cause_only,
    promises_can_be_kept,
    promises_are_few,
    all_that_waits_has_one_true_reason,
)
