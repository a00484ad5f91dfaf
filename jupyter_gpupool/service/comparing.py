"""What another policy would do to those who use the pool now.

Owns: who becomes over quota, and which promises move, by planning the same queue under both policies. Pure.
Never: putting a policy in force.
"""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpupool.scheduler.limits import Limits
from jupyter_gpupool.scheduler.model import Seconds, Snapshot
from jupyter_gpupool.scheduler.plan import plan
from jupyter_gpupool.scheduler.words import amount_text, time_text


def newly_over(old: Snapshot, new: Snapshot, now: Seconds) -> list[str]:
    """Say which groups use more than they would own, and do not now."""
    before, after = Limits(old, now), Limits(new, now)
    held = {lease.group for lease in new.leases}
    names = [*new.groups, *sorted(held - new.groups.keys())]
    found = []
    for name in names:
        over = after.excess(name)
        if not over or (name in old.groups and before.excess(name)):
            continue
        owned = after.subtree(name)
        uses = ", ".join(
            amount_text(resource, owned.get(resource, 0) + more) for resource, more in over.items()
        )
        owes = ", ".join(amount_text(resource, owned.get(resource, 0)) for resource in over)
        found.append(f"{name} uses {uses} and would be owed {owes}.")
    return found


def moved_promises(old: Snapshot, new: Snapshot, now: Seconds) -> list[str]:
    """Say which promises would move, or end: those of a plan under the old policy, against the new one."""
    kept = {promise.work: promise for promise in plan(old, now).promises}
    under_new = plan(new, now)
    started = {start.work for start in under_new.starts}
    after = {promise.work: promise for promise in under_new.promises}
    groups = {work.id: work.group for work in old.waiting}
    zone = old.settings.zone

    def sentences() -> Iterator[str]:
        for work, promise in kept.items():
            following = after.get(work)
            if work in started or (following is not None and following.start == promise.start):
                continue
            what = f"The promise to {work} in {groups[work]}"
            was = time_text(promise.start, now, zone)
            if following is not None:
                yield f"{what} moves from {was} to {time_text(following.start, now, zone)}."
            else:
                reason = under_new.verdicts[work].reason.value if work in under_new.verdicts else "Invalid"
                yield f"{what}, {was}, ends: it would wait under {reason}."

    return list(sentences())
