"""What the service answers about one thing, in one phrase: a request, a place, how a job stands.

Owns: the words that tables, lines and HTML have in common. Never: a request to the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from jupyter_gpupool.client.following import ENDED
from jupyter_gpupool.client.tasks import states_text
from jupyter_gpupool.client.text import (
    Clock,
    memory,
    percent,
    plural,
    relative,
    seconds_of,
    sentence,
    thousandths,
    when,
)

Json = Mapping[str, Any]

SIMULATED = "Simulated pool: jobs really run, the cards are only counted."


def request_text(request: Json) -> str:
    """Say what part of the cards is asked for."""
    if request["gpus"]:
        text = plural(request["gpus"], "GPU")
    elif request["gpu_mib"]:
        text = f"{memory(request['gpu_mib'])} of a GPU"
    else:
        return "CPU only"
    types = " or ".join(request.get("gpu_types") or ())
    return f"{text} ({types})" if types else text


def placement_text(placement: Json | None) -> str:
    """Say where work runs: ``node1: GPU 0, 3``."""
    if not placement:
        return ""
    cards: dict[str, list[str]] = {name: [] for name in placement["nodes"]}
    for share in placement["gpus"]:
        name = share["uuid"] if share.get("index") is None else str(share["index"])
        cards.setdefault(share.get("node") or "", []).append(name)
    return "; ".join(f"{node}: GPU {', '.join(names)}" if names else node for node, names in cards.items())


def starts_text(waiting: Json, clock: Clock | None = None, *, distance: bool = True) -> str:
    """Say when something that waits is expected to start, how far away that is, and how sure it is."""
    iso = waiting.get("expected_start")
    if iso is None:
        return ""
    if seconds_of(iso) <= (clock or Clock()).now:
        return "any moment"
    about = "" if waiting.get("kind") == "promise" else "about "
    remarks = [relative(iso, clock) if distance else "", waiting.get("kind") or ""]
    remark = ", ".join(text for text in remarks if text)
    return f"{about}{when(iso, clock)}" + (f" ({remark})" if remark else "")


def standing(job: Json, clock: Clock | None = None, *, state_shown: bool = False) -> str:
    """Say in one line how a job stands: what it waits for, how far it is, or how it ended.

    `state_shown`: the state's name stands beside it already.
    """
    state = job["state"]
    array = job.get("array")
    if array and state not in ENDED:
        waits = f"; {_standing_in_queue(job, clock)}" if job.get("waiting") else ""
        return f"{states_text(array, state if state_shown else '')}{waits}"
    if state in ("queued", "held"):
        return _standing_in_queue(job, clock)
    if state in ENDED:
        return _ending(job)
    where = placement_text(job.get("placement"))
    parts = ["" if state_shown or state == "running" else state, f"on {where}" if where else ""]
    parts.append(progress_text(job.get("progress")))
    if job.get("expires_at"):
        parts.append(f"ends by {when(job['expires_at'], clock)}")
    return ", ".join(part for part in parts if part) or state


def progress_text(progress: Json | None) -> str:
    """Say what a job reported: ``40 %, loss 0.31``."""
    if not progress:
        return ""
    fraction = progress.get("fraction")
    parts = [] if fraction is None else [percent(fraction)]
    parts += [f"{name} {_value(value)}" for name, value in (progress.get("values") or {}).items()]
    return ", ".join(parts)


def counts_text(running: int, waiting: int) -> str:
    """Say how many jobs run and how many wait: ``1 running, 0 waiting``."""
    return f"{running:,} running, {waiting:,} waiting"


def lease_waits(lease: Json, clock: Clock | None = None) -> str:
    """Say what a lease waits for."""
    waiting = lease.get("waiting") or {}
    starts = starts_text(waiting, clock)
    message = sentence(waiting.get("message") or "it waits for its turn")
    return f"{message} Expected {starts}." if starts else message


def cores_text(milli: int) -> str:
    """Say how many cores."""
    return "1 core" if milli == 1000 else f"{thousandths(milli)} cores"


def _standing_in_queue(job: Json, clock: Clock | None) -> str:
    waiting = job.get("waiting") or {}
    message = (waiting.get("message") or job.get("reason") or job["state"]).rstrip(".")
    starts = starts_text(waiting, clock)
    return f"{message}; starts {starts}" if starts else message


def _ending(job: Json) -> str:
    outcome = (job.get("outcome") or state_text(job["state"])).rstrip(".")
    cause = cause_text(job.get("diagnosis")).rstrip(".")
    return outcome if cause in ("", outcome) else f"{outcome}: {cause}"


def cause_text(diagnosis: Json | None) -> str:
    """Say why a job failed, where that is more than the exit code or the signal, which its outcome says."""
    if diagnosis is None or diagnosis["kind"] in ("exit_code", "signal"):
        return ""
    return str(diagnosis["summary"])


def sharing_text(placement: Json) -> str:
    """Say how cards are shared and how well their users are kept apart."""
    if not placement.get("gpus") or not placement.get("mode"):
        return ""
    return f"{placement['mode']}, {placement['isolation']} isolation"


def moment_text(iso: str | None, clock: Clock | None) -> str:
    """Write a moment and how far away it is."""
    return f"{when(iso, clock)} ({relative(iso, clock)})" if iso else ""


def soon_text(iso: str | None, clock: Clock | None) -> str:
    """Write an expected start."""
    if iso is None:
        return "not foreseeable"
    away = relative(iso, clock)
    return "now" if away == "now" or away.endswith("ago") else f"{when(iso, clock)} ({away})"


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def fate_text(state: str) -> str:
    """Say what has become of a job."""
    return _FATES.get(state, f"is {state_text(state)}")


_FATES = {
    "completed": "has completed",
    "failed": "has failed",
    "cancelled": "was cancelled",
    "timed_out": "has timed out",
}


def state_text(state: str) -> str:
    """Write a state as words."""
    return state.replace("_", " ")


def use_text(used: int, limit: int | None, text: Callable[[int], str]) -> str:
    """Write what is used of a limit."""
    return f"{text(used)} of {text(limit)}" if limit is not None else text(used)
