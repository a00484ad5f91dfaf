"""Why something waits, in words that its owner understands.

Owns: one sentence with the numbers and one that says what would clear it, for every reason.
Never: the decision itself, nor the numbers (`verdicts` has them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpupool.scheduler.model import Reason, Snapshot, Verdict
from jupyter_gpupool.scheduler.quota import CPUS, GPU, MEMORY
from jupyter_gpupool.scheduler.words import amount_text, counted, decimal, size_text, time_text

HOUR = 3600

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence with the numbers, and one that says what would clear it."""

    message: str
    clears: str


def explain(verdict: Verdict, snapshot: Snapshot) -> Explanation:
    """Turn a verdict's facts into sentences; times are as the site's clocks show them."""
    zone = snapshot.settings.zone
    facts: Facts = {**verdict.facts, "zone": zone}
    if "room" in facts:
        facts = {**facts, "room": {**facts["room"], "zone": zone}}
    if verdict.reason in (Reason.PRIORITY, Reason.RESOURCES) and "room" in facts:
        kind = next((work.kind for work in snapshot.waiting if work.id == verdict.work), "job")
        return _behind(verdict, facts, kind)
    return _SENTENCES[verdict.reason](facts)


def _held(facts: Facts) -> Explanation:
    return Explanation(f"Held: {_stop(facts['why'])}", "Release it to put it back in the queue.")


def _invalid(facts: Facts) -> Explanation:
    return Explanation(f"Cannot run as it is: {_stop(facts['why'])}", "Submit it again with that corrected.")


def _refused(facts: Facts) -> Explanation:
    return Explanation(facts["message"], facts["hint"] or "Ask your administrator.")


def _dependency(facts: Facts) -> Explanation:
    before = " and ".join(f"{facts['kind']} {id_}" for id_ in facts["after"])
    return Explanation(f"Waits for {before} to end first.", f"It clears by itself when {before} has ended.")


def _outside_window(facts: Facts) -> Explanation:
    if facts["opens"] is None:
        return Explanation(
            f"Waits for window {facts['window']}, which does not open again.",
            "Submit it with another window, or without one.",
        )
    opens = _time(facts, "opens")
    return Explanation(
        f"Waits for window {facts['window']}, which opens at {opens}.",
        f"The window opens at {opens}; without --window it could start sooner.",
    )


def _user_limit(facts: Facts) -> Explanation:
    owner, used, limit = facts["owner"], facts["used"], facts["limit"]
    frees = _frees(facts)
    if facts["what"] == "gpus":
        has, most, need = decimal(used), amount_text(GPU, limit), amount_text(GPU, facts["need"])
        message = f"The limit of {owner} is {most}: {has} held, and this needs {need}.{frees}"
    elif facts["what"] == "sessions":
        message = f"The limit of {owner} is {counted(limit, 'session')} at once: {used} held.{frees}"
    elif facts["what"] == "priority":
        message = f"Your limit is {counted(limit, 'job')} of priority {owner} at once: {used} running.{frees}"
    else:
        message = f"The limit of {owner} is {counted(limit, 'job')} at once: {used} running.{frees}"
    return Explanation(message, "It clears when one of your own ends, or is ended by you.")


def _back_off(facts: Facts) -> Explanation:
    until = _time(facts, "until")
    return Explanation(f"Waits until {until} before it is tried again.", f"It clears by itself at {until}.")


def _unavailable(facts: Facts) -> Explanation:
    because = f" ({facts['because']})" if facts["because"] else ""
    if not facts["total"]:
        return Explanation(f"No node for this is available now{because}.", "It clears when one is back.")
    return Explanation(
        f"{facts['away']} of the {facts['total']} cards that could run this are not available now{because}.",
        "It clears when they are back.",
    )


def _array_limit(facts: Facts) -> Explanation:
    running = f"{facts['used']} of the {facts['limit']} tasks that may run at once"
    return Explanation(
        f"Array {facts['owner']} runs {running}.{_frees(facts)}", "It clears when one of its tasks ends."
    )


def _group_quota(facts: Facts) -> Explanation:
    resource, group, rule = facts["what"], facts["owner"], facts["rule"]
    used, limit = _number(resource, facts["used"]), amount_text(resource, facts["limit"])
    needs = f"and this needs {amount_text(resource, facts['need'])}.{_frees(facts)}"
    ends = f"It clears when work of group {group} ends"
    if rule == "lasting":
        return Explanation(
            f"Sessions of group {group}, with its long jobs that cannot be stopped, hold {used} of {limit} "
            f"of its quota, {needs}",
            f"It clears when one of them ends, or when the quota of group {group} is raised.",
        )
    if rule == "owned":
        return Explanation(
            f"Group {group} uses {used} of {limit} of its quota, {needs} A long job that cannot be stopped "
            "borrows nothing.",
            f"{ends}; resumable, or with a shorter time limit, it could borrow.",
        )
    if rule == "lent":
        return Explanation(
            f"All that groups lend is in use: {used} of {limit}, {needs}",
            "It clears when work above its group's quota ends, or when the quota of your group is raised.",
        )
    return Explanation(
        f"Group {group} uses {used} of {limit}, {needs}",
        f"{ends}, or when its limit is raised.",
    )


def _budget(facts: Facts) -> Explanation:
    used, limit, need = (_gpu_hours(facts[name]) for name in ("used", "limit", "need"))
    ends = f" A new period begins at {_time(facts, 'frees')}." if facts["frees"] else ""
    return Explanation(
        f"Group {facts['owner']} has used or set apart {used} of {limit} GPU hours of its budget, and this "
        f"needs up to {need}.{ends}",
        "It clears when work ends before its time limit, with the next period, or when the budget is raised; "
        "a shorter time limit needs less.",
    )


def _reclaiming(facts: Facts) -> Explanation:
    latest, many = _time(facts, "latest"), len(facts["jobs"]) + facts["more"]
    jobs = ", ".join(map(str, facts["jobs"])) + (f" and {facts['more']} more" if facts["more"] else "")
    who = f"{'job' if many == 1 else 'jobs'} {jobs} of {' and '.join(facts['groups'])}"
    if facts["asked"]:
        return Explanation(
            f"Waits for {who}, asked to stop and gone by {latest}.",
            f"It clears by itself, at {latest} at the latest.",
        )
    held = amount_text(GPU, facts["gpu_milli"]) if facts["gpu_milli"] else "room"
    holds = "holds" if many == 1 else "hold"
    return Explanation(
        f"Inside quota, but {who} {holds} {held} above quota, until {latest} at the latest.",
        f"It clears when {'it ends or is' if many == 1 else 'they end or are'} asked to stop.",
    )


def _no_slot(facts: Facts) -> Explanation:
    host = f"Host {facts['owner']}" if facts["owner"] else "This host"
    jobs = counted(facts["used"], "job")
    return Explanation(
        f"{host} runs {jobs}, as many at once as it can ({facts['limit']}).{_frees(facts)}",
        "It clears when a job on the host ends.",
    )


def _behind(verdict: Verdict, facts: Facts, kind: str) -> Explanation:
    room: Facts = facts["room"]
    needed, lacking = _needed(room), _lacking(room)
    if verdict.reason is Reason.RESOURCES and room["lacks"] == "nothing" and facts["reserved"] is not None:
        start = time_text(facts["reserved"], room["now"], room["zone"])
        return Explanation(
            f"Waits for {needed}: what is free is set apart for others from {start} on.",
            "It clears when that is over; with a time limit that ends before, it could start at once.",
        )
    if verdict.reason is Reason.RESOURCES:
        return Explanation(f"Waits for {needed}: {lacking}.", f"It clears when {needed} can be had at once.")
    first = f"{kind} {facts['first']}"
    if "promised" in facts:
        start = time_text(facts["promised"], room["now"], room["zone"])
        return Explanation(
            f"A start now would delay {first}, which is promised to start at {start}.",
            f"It clears when {first} has started; a shorter time limit could fit in before.",
        )
    place = f"number {verdict.position} in the queue" if verdict.position else "behind others"
    return Explanation(
        f"It is {place}, after {first}. Waits for {needed}: {lacking}.",
        f"It clears when those before it have started and {needed} can be had.",
    )


def _needed(room: Facts) -> str:
    if not room["cards"]:
        return _beside(room)
    if room["mib"]:
        return f"{size_text(room['mib'])} of one card"
    return amount_text(GPU, 1000 * room["cards"])


def _beside(room: Facts) -> str:
    """Name the CPUs and the memory needed in one node."""
    memory = f" and {amount_text(MEMORY, room['memory_mib'])}" if room["memory_mib"] else ""
    return f"{amount_text(CPUS, room['cpus_milli'])}{memory}"


def _lacking(room: Facts) -> str:
    if room["lent"] is None:
        return _lacking_now(room)
    start, partition = room["lent"]
    return f"{_lacking_now(room)}; {partition} lends cards at {time_text(start, room['now'], room['zone'])}"


def _lacking_now(room: Facts) -> str:
    where = room["partition"]
    if room["lacks"] == "nothing":
        return "what is free is reserved for those before it"
    if room["lacks"] == "node":
        return f"no node of {where} {'with a free card ' if room['cards'] else ''}has {_beside(room)} free"
    if room["mib"]:
        largest = room["largest_free_mib"]
        what = f"the largest free piece in {where} is {size_text(largest)}" if largest else f"{where} is full"
    else:
        are = "is" if room["busy"] == 1 else "are"
        what = f"{room['busy']} of {counted(room['total'], 'card')} in {where} {are} busy"
    return f"{what}; the next frees at {_time(room, 'frees')}" if room["frees"] else what


def _frees(facts: Facts) -> str:
    return f" More is free by {_time(facts, 'frees')}." if facts["frees"] else ""


def _time(facts: Facts, name: str) -> str:
    return time_text(facts[name], facts["now"], facts["zone"])


def _gpu_hours(milli_seconds: int) -> str:
    return decimal(milli_seconds // HOUR)


def _number(resource: str, value: int) -> str:
    return size_text(value) if resource == MEMORY else decimal(value)


def _stop(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


_SENTENCES: dict[Reason, Callable[[Facts], Explanation]] = {
    Reason.HELD: _held,
    Reason.INVALID: _invalid,
    Reason.NO_SUCH_GPU: _refused,
    Reason.EXCEEDS_LIMIT: _refused,
    Reason.DEPENDENCY: _dependency,
    Reason.OUTSIDE_WINDOW: _outside_window,
    Reason.USER_LIMIT: _user_limit,
    Reason.ARRAY_LIMIT: _array_limit,
    Reason.BACK_OFF: _back_off,
    Reason.UNAVAILABLE: _unavailable,
    Reason.GROUP_QUOTA: _group_quota,
    Reason.BUDGET: _budget,
    Reason.RECLAIMING: _reclaiming,
    Reason.RESOURCES: _no_slot,
}
