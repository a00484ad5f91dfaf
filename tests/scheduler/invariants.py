"""What the invariants say of one plan, checked from the outside.

Every check yields a sentence for each thing that is wrong; its docstring begins with the invariant's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jupyter_gpupool.scheduler.model import Lease, Lend, Stop
from tests.scheduler.invariants_of_waiting import WAITING
from tests.scheduler.outside import GPU, NEVER, Seen, suits


def faults(seen: Seen) -> list[str]:
    """Return a sentence for each invariant that a plan breaks."""
    return [fault for check in CHECKS for fault in check(seen)]


# -- 1


def cards_are_never_overbooked(seen: Seen) -> Iterator[str]:
    """1: leases never exceed a card; whole and lent ones are shared with nobody; kinds do not mix."""
    held = [*seen.snapshot.leases, *seen.begun]
    for uuid, gpu in seen.cards.items():
        there = [(one, taken) for one in held for card, taken in seen.takes(one) if card == uuid]
        if sum(taken for _, taken in there) > gpu.memory_mib:
            yield f"1: {uuid} is overbooked by {[one.work for one, _ in there]}"
        if len({one.kind for one, _ in there}) > 1:
            yield f"1: {uuid} has sessions and jobs: {[one.work for one, _ in there]}"
    for node in seen.snapshot.nodes:
        needs = [seen.host_needs(one) for one in held if node.name in one.placement.nodes]
        if sum(cpus for cpus, _ in needs) > node.cpus_milli:
            yield f"1: CPUs of {node.name} are overbooked"
        if sum(memory for _, memory in needs) > node.memory_mib:
            yield f"1: memory of {node.name} is overbooked"


def starts_are_where_they_may_be(seen: Seen) -> Iterator[str]:
    """1: what starts has just what it asked for, on machines that suit it and are there for it."""
    nodes = {node.name: node for node in seen.snapshot.nodes}
    for lease in seen.begun:
        request, uuids = lease.request, [share.uuid for share in lease.placement.gpus]
        cards = [seen.cards[uuid] for uuid in uuids]
        if len(set(uuids)) != len(uuids) or len(cards) != (
            request.gpus or bool(request.gpu_mib or request.share)
        ):
            yield f"1: {lease.work} has cards {uuids}"
        if {card.node for card in cards} - set(lease.placement.nodes) or not lease.placement.nodes:
            yield f"1: {lease.work} has cards {uuids} on nodes {lease.placement.nodes}"
        for card in cards:
            if not (card.available and nodes[card.node].available and suits(request, card)):
                yield f"1: {lease.work} starts on {card.uuid}"
            if card.partition != lease.placement.partition:
                yield f"1: {lease.work} has {card.uuid} in {lease.placement.partition}"
            for one in seen.snapshot.reservations:
                overlaps = one.start < min(lease.end, seen.back(lease)) and seen.now < one.end
                if card.uuid in one.gpus and overlaps and not one.serves(lease.group, lease.user):
                    yield f"1: {lease.work} starts on {card.uuid}, reservation {one.id}"
        partition = seen.snapshot.partitions[lease.placement.partition]
        lent = seen.lend(lease)
        if lease.kind not in partition.kinds and lent is None:
            yield f"1: {lease.work} starts in {partition.name}"
        if request.partition not in (None, partition.name, lent.to if lent else None):
            yield f"1: {lease.work} starts in {partition.name}, not in {request.partition}"


def starts_fit(seen: Seen) -> Iterator[str]:
    """1, 2, 3: what starts has room on its machines, under all limits, in its quota or what others lend."""
    held = list(seen.snapshot.leases)
    for lease in seen.begun:
        for lack in seen.lacks(lease, held, seen.now):
            yield f"1: {lease.kind} {lease.work} of {lease.group} starts without {lack}"
        held.append(lease)


# -- 2, 3


def sessions_come_within_quota(seen: Seen) -> Iterator[str]:
    """2: with a session, a group's sessions and lasting jobs are inside its own quota."""
    held = list(seen.snapshot.leases)
    for lease in seen.begun:
        others = [one for one in held if one.group == lease.group and seen.is_lasting(one, seen.now)]
        for name, most in {GPU: 0, **seen.groups[lease.group].quota.quota}.items():
            need = seen.amounts(lease)[name]
            if lease.kind == "session" and need:
                used = sum(seen.amounts(one)[name] for one in others)
                if used + need > most:
                    yield f"2: session {lease.work} makes {used + need} of {most} {name} of {lease.group}"
        held.append(lease)


def only_resumable_jobs_are_stopped(seen: Seen) -> Iterator[str]:
    """2, 3: only resumable jobs are asked, and only once."""
    for stop in seen.plan.stops:
        lease = seen.leases[stop.lease]
        if lease.kind != "job" or not lease.resumable:
            yield f"3: {lease.kind} {lease.work} is asked to stop for others"
        if lease.asked is not None or [one.lease for one in seen.plan.stops].count(lease.id) > 1:
            yield f"3: {lease.work} is asked twice"


def what_cannot_stop_does_not_borrow_for_long(seen: Seen) -> Iterator[str]:
    """3: a job that cannot resume is above quota only if its limit is at most `borrow_max_time`."""
    held = list(seen.snapshot.leases)
    for lease in seen.begun:
        long = lease.end - lease.start > seen.snapshot.settings.borrow_max_time
        needs = seen.amounts(lease)
        inside = seen.is_inside(lease, held, [name for name in seen.resources if needs[name]])
        if lease.kind == "job" and not lease.resumable and long and not inside:
            yield f"3: job {lease.work} cannot resume, lasts {lease.end - lease.start} s, and borrows"
        held.append(lease)
    for start, lease in zip(seen.plan.starts, seen.begun, strict=True):
        promised = {one.work for one in seen.snapshot.promises}
        before = [*seen.snapshot.leases, *seen.begun[: seen.begun.index(lease)]]
        beside = [one for one in seen.begun if one.work in promised and one not in (lease, *before)]
        borrows = {not seen.is_inside(lease, held) for held in (before, [*before, *beside])}
        if start.borrowed not in (borrows if lease.kind == "job" else {False}):
            yield f"3: {lease.work} says borrowed: {start.borrowed}"


def lent_cards_are_entered_on_their_terms(seen: Seen) -> Iterator[str]:
    """3: a job has lent cards when they are lent, with time left, beyond the headroom."""
    settings = seen.snapshot.settings
    for lease in seen.begun:
        lend = seen.lend(lease)
        if lend is None:
            continue
        windows, back = seen.snapshot.windows[lend.window], seen.back(lease)
        least = settings.min_run_time + lease.grace
        if back - seen.now < (least if lease.resumable else max(least, lease.end - seen.now)):
            yield f"3: {lease.work} has {back - seen.now} s on lent cards"
        if any(t0 <= seen.now < t1 for t0, t1 in windows):
            continue
        settled = max((t1 for _, t1 in windows if t1 <= seen.now), default=-NEVER) + lend.settle
        if not (lend.by_day and lease.resumable and settled <= seen.now):
            yield f"3: {lease.work} is on lent cards by day"
        free = free_slices(seen, lease.placement.partition, lend)
        if free < lend.headroom:
            yield f"3: {lease.work} leaves {free} slices for sessions"


def free_slices(seen: Seen, partition: str, lend: Lend) -> int:
    """Count the smallest slices that sessions find free right after a plan."""
    nodes = {node.name: node.available for node in seen.snapshot.nodes}
    free = {
        gpu.uuid: gpu.memory_mib
        for gpu in seen.snapshot.gpus
        if gpu.partition == partition and gpu.available and nodes[gpu.node]
    }
    for one in seen.snapshot.reservations:
        for uuid in one.gpus & free.keys():
            if one.start <= seen.now < one.end:
                free[uuid] = 0
    for lease in (*seen.snapshot.leases, *seen.begun):
        for uuid, mib in seen.takes(lease):
            if uuid in free:
                free[uuid] -= seen.cards[uuid].memory_mib if lease.kind == "job" else mib
    part, whole = lend.slice
    return sum(max(0, mib) // (seen.cards[uuid].memory_mib * part // whole) for uuid, mib in free.items())


def lent_cards_are_handed_back(seen: Seen) -> Iterator[str]:
    """3: whoever can resume is asked its grace before the hand-back; who cannot is over by then."""
    asked = {stop.lease for stop in seen.plan.stops}
    for lease in seen.snapshot.leases:
        back = seen.back(lease)
        if back == NEVER or lease.end <= back:
            continue
        if lease.resumable and lease.asked is None and back - lease.grace <= seen.now:
            if lease.id not in asked:
                yield f"3: {lease.work} is not asked to hand back what it has by {back}"
        elif any(one.lease == lease.id and one.cause == "hand_back" for one in seen.plan.stops):
            yield f"3: {lease.work} is to hand back {back - lease.grace - seen.now} s too soon"


# -- 4


def takers_are_inside_quota(seen: Seen) -> Iterator[str]:
    """4: who has others stopped stays inside quota, in all resources, with all that its group takes so."""
    for stop in seen.plan.stops:
        if stop.cause == "hand_back":
            continue
        if stop.taker in {one.work for one in seen.plan.starts}:
            continue  # another promise came sooner after that, and left it room at once
        taker = seen.promised.get(stop.taker or 0)
        if taker is None:
            yield f"4: {stop.work} is asked for {stop.taker}, for which nothing is kept"
            continue
        if stop.cause not in ("reclaim", "preempt"):
            continue
        asked = {one.taker for one in seen.plan.stops if one.cause in ("reclaim", "preempt")}
        beside = [
            one
            for one in seen.promised.values()
            if one.group == taker.group and one.work in asked and one.work != taker.work
        ]
        beside = [one for one in beside if seen.works[one.work].kind == taker.kind]
        leaving = {one.lease for one in seen.plan.stops if one.cause == "preempt" and one.taker in asked}
        held = [lease for lease in seen.snapshot.leases if lease.id not in leaving]
        if not seen.is_inside(taker, [*held, *beside]):
            yield f"4: {taker.work} of {taker.group} is above quota, and {stop.work} is asked for it"


def victims_are_above_quota(seen: Seen) -> Iterator[str]:
    """4: who is asked by reclaim is above quota, up to the common ancestor, in what the taker lacks."""
    held = [*seen.snapshot.leases, *seen.begun]
    leaving = {lease.id for lease in seen.snapshot.leases if lease.asked is not None}
    for stop in seen.plan.stops:
        victim = seen.leases[stop.lease]
        staying = [lease for lease in held if lease.id not in leaving]
        leaving.add(stop.lease)
        taker = seen.promised.get(stop.taker or 0)
        if stop.cause != "reclaim" or taker is None:
            continue
        above = [name for name in seen.chain(victim.group) if name not in seen.chain(taker.group)]
        above = above or [victim.group]
        frees, needs = seen.amounts(victim), seen.amounts(taker)
        wanted = [name for name in seen.resources if frees[name] and needs[name]]
        if not any(
            all(seen.trees[name].excess(group, seen.own(staying, name)) > 0 for group in above)
            for name in wanted
        ):
            yield f"4: {victim.work} of {victim.group} is not above quota in what {taker.work} lacks"


def who_preempts_may(seen: Seen) -> Iterator[str]:
    """4: a class that preempts has lower ones of its own group stopped, and no others."""
    for stop in seen.plan.stops:
        if stop.cause == "preempt":
            victim, taker = seen.leases[stop.lease], seen.works[stop.taker or 0]
            preempts = seen.snapshot.priorities[taker.priority].preempts
            if not preempts or victim.group != taker.group or seen.value(victim) >= seen.value(taker):
                yield f"4: {victim.work} is preempted by {taker.work}"
        if stop.cause == "session":
            victim, taker = seen.leases[stop.lease], seen.works[stop.taker or 0]
            if taker.kind != "session" or seen.lend(victim) is None:
                yield f"4: {victim.work} gives way to {taker.kind} {taker.work}, and has no lent card"


def stops_suffice_and_are_needed(seen: Seen) -> Iterator[str]:
    """4: with all that are asked for it a taker fits where it is promised, with any one fewer it does not."""
    stops = seen.plan.stops
    for work in dict.fromkeys(stop.taker for stop in stops if stop.taker is not None):
        taker = seen.promised.get(work)
        if taker is None:
            continue
        lacks = seen.lacks(taker, seen.at(taker.start, stops, but=work), taker.start)
        if any(
            not lack.endswith("that the group owns") for lack in lacks
        ):  # others of it may begin to borrow
            yield f"4: {work} lacks {lacks} at {taker.start}, after all stops"
        later = {one.start for one in seen.promised.values() if taker.start < one.start < taker.end}
        for stop in stops:
            fewer = [one for one in stops if one is not stop]
            if (
                stop.taker == work
                and not any(
                    seen.lacks(taker, seen.at(time, fewer, but=work), time) for time in (taker.start, *later)
                )
                and is_owed_after(seen, taker, fewer)
            ):
                yield f"4: {stop.work} is asked for {work}, which fits without that"


def is_owed_after(seen: Seen, taker: Lease, stops: Sequence[Stop]) -> bool:
    """Say whether a taker is inside quota once those of its group have left whom it preempts."""
    left = {stop.lease for stop in stops if stop.cause == "preempt" and stop.taker == taker.work}
    return taker.kind == "session" or seen.is_inside(
        taker, [lease for lease in seen.snapshot.leases if lease.id not in left]
    )


# -- 5


def nobody_is_stopped_too_soon(seen: Seen) -> Iterator[str]:
    """5: every job is safe for `min_run_time` from being taken back or preempted."""
    for stop in seen.plan.stops:
        ran = seen.now - seen.leases[stop.lease].start
        if stop.cause in ("reclaim", "preempt") and ran < seen.snapshot.settings.min_run_time:
            yield f"5: {stop.work} is asked after {ran} s"


def nothing_starts_before_it_may(seen: Seen) -> Iterator[str]:
    """5: nothing starts while it rests, is held, invalid, after other work or outside its window."""
    for lease in seen.begun:
        work = seen.works[lease.work]
        windows = seen.snapshot.windows.get(work.window or "", ())
        outside = work.window is not None and not any(t0 <= seen.now < t1 for t0, t1 in windows)
        if work.held or work.invalid or work.after or work.not_before > seen.now or outside:
            yield f"5: {work.id} starts too soon"


CHECKS: tuple[Callable[[Seen], Iterator[str]], ...] = (
    cards_are_never_overbooked,
    starts_are_where_they_may_be,
    starts_fit,
    sessions_come_within_quota,
    only_resumable_jobs_are_stopped,
    what_cannot_stop_does_not_borrow_for_long,
    lent_cards_are_entered_on_their_terms,
    lent_cards_are_handed_back,
    takers_are_inside_quota,
    victims_are_above_quota,
    who_preempts_may,
    stops_suffice_and_are_needed,
    nobody_is_stopped_too_soon,
    nothing_starts_before_it_may,
    *WAITING,
)
