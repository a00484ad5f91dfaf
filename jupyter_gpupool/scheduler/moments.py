"""When something changes by itself.

Owns: the next moment at which a plan may differ though nobody did anything: windows, hand-backs, back-off,
promises, reservations, budgets, the end of a protection. Never: ends of work, which are events of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_gpupool.scheduler.ends import Ends
from jupyter_gpupool.scheduler.model import Seconds, Snapshot, Work
from jupyter_gpupool.scheduler.quota import GPU, QuotaTree, held
from jupyter_gpupool.scheduler.stopping import asked_at
from jupyter_gpupool.scheduler.tree import Tally


def next_moment(snapshot: Snapshot, now: Seconds, used: Tally | None = None) -> Seconds | None:
    """Return the next moment after `now` at which something changes for what waits or runs.

    Parameters
    ----------
    snapshot
        The pool at `now`, seconds since the epoch, UTC.
    used
        What groups hold of the cards, where the caller keeps count of it.

    Returns
    -------
    int or None
        Seconds since the epoch, UTC; None when nothing will change until somebody does something.
    """
    return min((moment for moment in _moments(snapshot, now, used) if moment > now), default=None)


def _moments(snapshot: Snapshot, now: Seconds, used: Tally | None) -> Iterator[Seconds]:
    ends = Ends(snapshot, now)
    if any(partition.lend for partition in snapshot.partitions.values()):
        asks = (asked_at(lease, ends) for lease in snapshot.leases)
        yield from (moment for moment in asks if moment is not None)
    works = [work for work in snapshot.waiting if not (work.held or work.invalid or work.after)]
    if not works:
        return
    yield from (work.not_before for work in works if work.not_before > now)
    yield from (promise.start for promise in snapshot.promises)
    yield from (edge for found in snapshot.reservations for edge in (found.start, found.end))
    yield from (end for budget in snapshot.budgets.values() for end in budget.ends)
    yield from _windows(snapshot, works)
    yield from _caps_of_sessions(snapshot, works)
    yield from _protections(snapshot, works, now, used)


def _windows(snapshot: Snapshot, works: Iterable[Work]) -> Iterator[Seconds]:
    """Yield the edges of the windows that works name, and those between which cards are lent."""
    named = {work.window for work in works if work.window is not None}
    lends = [partition.lend for partition in snapshot.partitions.values() if partition.lend is not None]
    for name in named | {lend.window for lend in lends}:
        yield from (edge for window in snapshot.windows.get(name, ()) for edge in window)
    for lend in lends:
        if lend.by_day:
            yield from (end + lend.settle for _, end in snapshot.windows.get(lend.window, ()))


def _caps_of_sessions(snapshot: Snapshot, works: Iterable[Work]) -> Iterator[Seconds]:
    """Yield when jobs that cannot resume no longer count against sessions and long jobs of their group."""
    waiting = {work.group for work in works if work.kind == "session" or not work.resumable}
    for lease in snapshot.leases:
        if lease.kind == "job" and not lease.resumable and lease.group in waiting:
            yield lease.end - snapshot.settings.borrow_max_time


def _protections(
    snapshot: Snapshot, works: Iterable[Work], now: Seconds, used: Tally | None
) -> Iterator[Seconds]:
    """Yield when jobs may be asked to stop that may not yet, where somebody waits who is owed cards."""
    grown_up = now - snapshot.settings.min_run_time
    young = [one for one in snapshot.leases if one.start > grown_up and one.resumable and one.asked is None]
    if young and _owed(snapshot, works, used or _used(snapshot)):
        yield from (lease.start + snapshot.settings.min_run_time for lease in young)


def _owed(snapshot: Snapshot, works: Iterable[Work], used: Tally) -> bool:
    """Say whether some group that waits has less than it owns, or a class that preempts waits."""
    preempting = {name for name, cls in snapshot.priorities.items() if cls.preempts}
    groups = {work.group for work in works}
    return any(used.left(group) > 0 for group in groups) or any(work.priority in preempting for work in works)


def _used(snapshot: Snapshot) -> Tally:
    """Count the cards that the groups hold."""
    tally = Tally(QuotaTree(snapshot.groups, GPU, 0))
    for group, milli in held(snapshot.leases, {}, GPU).items():
        if group in snapshot.groups:
            tally.add(group, milli)
    return tally
