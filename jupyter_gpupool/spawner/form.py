"""The part of the spawn page that offers group and slice.

Owns: what the page shows, made from the pool's `ChoicesReply`, and which choice is preset. Never: HTML, which
is in ``form.html`` and escapes everything; nor whether a choice is granted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, Template

from jupyter_gpupool.client.text import plural, thousandths, when
from jupyter_gpupool.spawner.choice import CPU_ONLY, pick

View = dict[str, Any]
Json = Mapping[str, Any]

_STANDING = {"available": "Free now", "waits": "You would wait", "refused": "Not available"}


def render(choices: Json, remembered: Json) -> str:
    """Return the form for a `ChoicesReply`; `remembered` are the options of the last good start."""
    return _template().render(view(choices, remembered))


def unavailable(message: str) -> str:
    """Return what the page shows when the pool cannot be asked."""
    return _template().render(view({}, {}) | {"problem": message})


@cache
def _template() -> Template:
    files = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=files, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(
        "form.html"
    )


def view(choices: Json, remembered: Json) -> View:
    """Return everything that the page shows, as text and numbers."""
    groups = [_group(group) for group in choices.get("groups", [])]
    shown = _shown_first(groups, choices, remembered)
    for group in groups:
        _preset(group, remembered)
        group["shown"] = group is shown
    return {
        "groups": groups,
        "message": choices.get("message"),
        "free": [_free(partition) for partition in choices.get("free", [])],
        "simulated": choices.get("simulated", False),
        "waits": any(offer["state"] == "waits" for group in groups for offer in group["offers"]),
        "when_full": "cpu" if remembered.get("when_full") == "cpu" else "wait",
        "problem": None,
    }


def _group(group: Json) -> View:
    meters = [
        _meter("You", group["user_used_milli"], group["user_limit_milli"], "GPU"),
        _meter("Your sessions", group["user_sessions"], group["user_sessions_limit"], ""),
        _meter(str(group["name"]), group["used_milli"], group["limit_milli"], "GPU"),
    ]
    return {
        "name": group["name"],
        "meters": meters if group["name"] is not None else [],
        "offers": sorted(
            (_offer(group["name"], offer) for offer in group["slices"]),
            key=lambda offer: bool(offer["slice"] == CPU_ONLY),
        ),
    }


def _meter(name: str, used: int, limit: int | None, unit: str) -> View:
    text = thousandths if unit else str
    amount = text(used) if limit is None else f"{text(used)} of {text(limit)}"
    most = text(used if limit is None else limit)
    return {
        "name": name,
        "used": used,
        "limit": limit,
        "percent": min(100, round(100 * used / limit)) if limit else 0,
        "full": limit is not None and used >= limit,
        "text": f"{amount} {unit if most == '1' else unit + 's'}" if unit else amount,
    }


def _offer(group: str | None, offer: Json) -> View:
    title, _, details = offer["label"].partition(", ")
    return {
        "value": pick(group, offer["slice"], offer["partition"]),
        "slice": offer["slice"],
        "partition": offer["partition"],
        "title": title,
        "details": _details(details),
        "state": offer["state"],
        "standing": _STANDING[offer["state"]],
        "message": offer["message"],
        "starts_at": offer["expected_start"],
        "starts": when(offer["expected_start"]),
        "gpu_milli": offer["gpu_milli"],
        "checked": False,
    }


def _details(along: str) -> str:
    """Say what comes along with a slice so that nobody takes the host's memory for the card's."""
    words = [f"{word} RAM" if word.endswith("iB") else word for word in along.split(", ")]
    return " · ".join(words)


def _free(partition: Json) -> str:
    return f"{partition['partition']}: {partition['idle_gpus']} of {plural(partition['gpus'], 'GPU')} idle"


def _shown_first(groups: list[View], choices: Json, remembered: Json) -> View | None:
    """Return the group whose slices are shown: the last one used, the default, or the first."""
    by_name = {group["name"]: group for group in groups}
    for name in (remembered.get("group"), choices.get("default_group")):
        if name in by_name:
            return by_name[name]
    return groups[0] if groups else None


def _preset(group: View, remembered: Json) -> None:
    """Check the choice of the last time if it can be had, else the smallest that is free, else CPU only."""
    offers = [offer for offer in group["offers"] if offer["state"] != "refused"]
    last = [offer for offer in offers if offer["slice"] == remembered.get("slice")]
    free = [offer for offer in offers if offer["state"] == "available" and offer["slice"] != CPU_ONLY]
    cpu = [offer for offer in offers if offer["slice"] == CPU_ONLY]
    for offer in (last + sorted(free, key=lambda offer: offer["gpu_milli"]) + cpu + offers)[:1]:
        offer["checked"] = True
