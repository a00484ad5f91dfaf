"""What is granted beside the policy, as plain text: boosts, reservations, requests, drains, and who did what.

Owns: pure functions from a reply (a dict) to lines; the clock is a parameter. Never: a request, HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_gpupool.client.text import Clock, memory, sentence, table, thousandths, when

Json = Mapping[str, Any]

NAMES = {"gpus_milli": "GPU", "cpus_milli": "CPU core"}


def cards_text(cards: Iterable[Json]) -> str:
    """Write cards by node and number: ``node1: GPU 0, 1; node2: GPU 3``."""
    by_node: dict[str, list[str]] = {}
    for card in cards:
        name = card["uuid"] if card["index"] is None else str(card["index"])
        by_node.setdefault(card["node"] or "", []).append(name)
    return "; ".join(
        f"{node}: GPU {', '.join(names)}" if node else ", ".join(names) for node, names in by_node.items()
    )


def until_text(grant: Json, clock: Clock | None) -> str:
    """Say how long a grant holds: ``from 14:00 until 18:00``."""
    since = f"from {when(grant['start'], clock)} " if grant["phase"] == "coming" else ""
    return f"{since}until {when(grant['until'], clock)}"


def amounts_text(boost: Json) -> str:
    """Say what a boost adds: ``2 GPUs, 4 CPU cores, 20 GPU hours``."""
    parts = []
    for key, amount in boost["amounts"].items():
        name, _, kind = key.partition(".")
        if name == "memory_mib":
            parts.append(f"{memory(amount)} of host memory")
        else:
            parts.append(_several(thousandths(amount), f"{kind} {NAMES[name]}".lstrip()))
    if boost["gpu_hours"]:
        parts.append(_several(f"{boost['gpu_hours']:g}", "GPU hour"))
    return ", ".join(parts)


def boosts(found: Iterable[Json], clock: Clock | None = None) -> list[str]:
    """List boosts."""
    rows = [
        (
            str(each["id"]),
            each["group"],
            each["user"] or "",
            amounts_text(each),
            when(each["start"], clock),
            when(each["until"], clock),
            each["out_of"] or "the pool",
            each["because"] or "",
        )
        for each in found
    ]
    columns = ("#id", "group", "user", "more", "from", "until", "out of", "because")
    return table(columns, rows) or ["No boost holds or will."]


def boost(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say what a boost gives."""
    if reply["phase"] == "over":
        return [f"Boost {reply['id']} is over."]
    whom = f"{reply['user']} in {reply['group']}" if reply["user"] else reply["group"]
    source = f", out of {reply['out_of']}" if reply["out_of"] else ""
    return [
        f"Boost {reply['id']}: {whom} gets {amounts_text(reply)} more {until_text(reply, clock)}{source}.",
        *reply["notes"],
    ]


def reservations(found: Iterable[Json], clock: Clock | None = None) -> list[str]:
    """List reservations and maintenance."""
    rows = [
        (
            str(each["id"]),
            _whom(each),
            cards_text(each["cards"]),
            when(each["start"], clock),
            when(each["until"], clock),
            each["out_of"] or "",
            each["because"] or "",
        )
        for each in found
    ]
    columns = ("#id", "for", "cards", "from", "until", "out of", "because")
    return table(columns, rows) or ["Nothing is reserved."]


def reservation(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say which cards are set apart, and what runs there past the start."""
    what = "Maintenance" if reply["maintenance"] else "Reservation"
    if reply["phase"] == "over":
        return [f"{what} {reply['id']} is over."]
    whom = "" if reply["maintenance"] else f" for {_whom(reply)}"
    cards = cards_text(reply["cards"])
    return [f"{what} {reply['id']}: {cards}{whom} {until_text(reply, clock)}.", *met(reply["met"], clock)]


def met(found: Iterable[Json], clock: Clock | None = None) -> list[str]:
    """Say what runs on cards past the moment from which they are wanted."""
    return [
        f"  {_work(each)} goes on there, until {when(each['until'], clock)} at the latest." for each in found
    ]


def requests(found: Iterable[Json], clock: Clock | None = None) -> list[str]:
    """List requests."""
    rows = [
        (
            str(each["id"]),
            each["state"],
            each["user"],
            each["group"],
            when(each["at"], clock),
            f"{each['text']}. {each['because']}{_answer(each)}",
        )
        for each in found
    ]
    return table(("#id", "state", "user", "group", "asked", "what"), rows) or ["No request waits."]


def request(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say how a request stands."""
    if reply["state"] == "open":
        return [f"Request {reply['id']} waits for an answer: {reply['text']}."]
    return [f"Request {reply['id']} is {reply['state']}: {reply['text']}.{_answer(reply)}"]


def drain(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say whether a node takes new work, and what still runs there."""
    if not reply["drained"]:
        return [f"{reply['node']} takes new work again."]
    running = reply["running"]
    goes_on = "What runs there goes on:" if running else "Nothing runs there."
    return [f"{reply['node']} takes no new work. {goes_on}", *_left(running, clock)]


def actions(found: Iterable[Json], clock: Clock | None = None) -> list[str]:
    """List who did what."""
    rows = [(when(each["at"], clock), each["by"], each["action"], each["text"]) for each in found]
    return table(("when", "who", "did", "what"), rows) or ["Nothing was done yet."]


def standing(group: Json, clock: Clock | None = None) -> list[str]:
    """Say how a group stands: over quota, lending, borrowing, what it got for a while, and its budget."""
    lines = []
    if group.get("over_since"):
        loans = group.get("borrowed")
        then = "what is borrowed goes back when it is needed" if loans else "nothing is stopped for it"
        lines.append(f"Over quota since {when(group['over_since'], clock)}; {then}.")
    lines += [
        f"Has {_loan(loan)} of {loan['group']} until about {when(loan['until'], clock)}."
        for loan in group.get("borrowed") or ()
    ]
    for loan in group.get("lent") or ():
        back = ", and sooner if you need them" if loan["on_demand"] else ""
        until = when(loan["until"], clock)
        lines.append(f"Lends {_loan(loan)} to {loan['group']}, until {until} at the latest{back}.")
    for each in group.get("boosts") or ():
        whom = f" for {each['user']}" if each["user"] else ""
        lines.append(f"Gets {amounts_text(each)} more{whom} {until_text(each, clock)}.")
    if budget := group.get("budget"):
        spent, hours = budget["spent_gpu_hours"], budget["gpu_hours"]
        until = when(budget["until"], clock)
        lines.append(
            f"Budget: {spent:,.1f} of {hours:,.1f} GPU hours are used; the {budget['period']} ends {until}."
        )
    return lines


def _loan(loan: Json) -> str:
    return _several(thousandths(loan["gpus_milli"]), "GPU")


def _several(amount: str, thing: str) -> str:
    return f"{amount} {thing}" if amount == "1" else f"{amount} {thing}s"


def _left(found: Iterable[Json], clock: Clock | None) -> list[str]:
    return [f"  {_work(each)}, until {when(each['until'], clock)} at the latest." for each in found]


def _work(work: Json) -> str:
    who = f"{work['user']} in {work['group']}" if work["user"] else f"somebody in {work['group']}"
    return f"{sentence(work['kind']).rstrip('.')} {work['id']} of {who}"


def _whom(reservation: Json) -> str:
    names = [*reservation["groups"], *(reservation["users"] or ())]
    return ", ".join(names) or ("maintenance" if reservation["maintenance"] else "somebody")


def _answer(request: Json) -> str:
    by = f" ({request['by']})" if request["by"] else ""
    return f" {sentence(request['answer'])}{by}" if request["answer"] else ""
