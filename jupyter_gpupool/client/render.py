"""What the service answers, as lines of plain text: the same in a shell and in a notebook's text output.

Owns: pure functions from a JSON reply to lines, and how sizes, times and requests are written. Never: a
request, a clock, HTML (see `jupyter_gpupool.notebook.views`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]

SIMULATED = "This pool is simulated: jobs really run, on CPUs; only the cards are simulated."
NONE = "-"


# -- words ---------------------------------------------------------------------------------------


def size(mib: int) -> str:
    """Write a size given in MiB: whole GiB where it is one."""
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


def milli(amount: int) -> str:
    """Write thousandths as a plain number: 1500 is ``1.5``."""
    return f"{amount / 1000:g}"


def duration(seconds: int) -> str:
    """Write a number of seconds: ``45s``, ``1h30m``, ``3d``."""
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def when(iso: str | None) -> str:
    """Write a time of the service (ISO 8601, UTC) in the reader's time zone."""
    if not iso:
        return NONE
    return datetime.fromisoformat(iso.replace("Z", "+00:00")).astimezone().strftime("%a %Y-%m-%d %H:%M")


def request_text(request: Json) -> str:
    """Write what work asks for: ``2 GPUs, 12 CPUs, 120GiB``."""
    if request["gpus"]:
        gpu = "1 GPU" if request["gpus"] == 1 else f"{request['gpus']} GPUs"
    elif request["gpu_mib"]:
        gpu = f"{size(request['gpu_mib'])} of a GPU"
    else:
        gpu = "no GPU"
    kinds = f" ({' or '.join(request['gpu_types'])})" if request.get("gpu_types") else ""
    return f"{gpu}{kinds}, {milli(request['cpus_milli'])} CPUs, {size(request['memory_mib'])}"


def standing(job: Json) -> str:
    """Say in one sentence where a job is: what it waits for, what it does, or how it ended."""
    state, waiting = job["state"], job.get("waiting")
    if waiting:
        place = f" Number {waiting['position']} in the queue." if waiting.get("position") else ""
        return f"{waiting['message']}{place}{_expected(waiting)}"
    if state in ("running", "stopping"):
        fraction = (job.get("progress") or {}).get("fraction")
        done = "" if fraction is None else f", {100 * fraction:.0f} % done"
        verb = "Stopping" if state == "stopping" else "Running"
        return f"{verb} since {when(job['started_at'])}{done}; at most until {when(job['expires_at'])}."
    return str(job.get("outcome") or job.get("reason") or f"{state.replace('_', ' ').capitalize()}.")


def _expected(waiting: Json) -> str:
    if not waiting.get("expected_start"):
        return ""
    sure = "Will start by" if waiting.get("kind") == "promise" else "Should start about"
    return f" {sure} {when(waiting['expected_start'])}."


# -- answers -------------------------------------------------------------------------------------


def jobs(found: Sequence[Json]) -> list[str]:
    """Say which jobs the user has."""
    if not found:
        return ["You have no jobs."]
    rows = [
        (str(job["id"]), job["name"], job["state"], job["group"], request_text(job["request"]), standing(job))
        for job in found
    ]
    return table(("id", "name", "state", "group", "asks for", ""), rows)


def queue(reply: Json) -> list[str]:
    """Say what waits, in order, and what runs."""
    waiting = [
        (
            str((job.get("waiting") or {}).get("position") or NONE),
            *_whose(job),
            job["priority"],
            standing(job),
        )
        for job in reply["waiting"]
    ]
    running = [(*_whose(job), when(job.get("expires_at"))) for job in reply["running"]]
    lines = [f"{len(waiting)} waiting, {len(running)} running."]
    if waiting:
        lines += ["", *table(("#", "id", "name", "user", "group", "asks for", "priority", ""), waiting)]
    if running:
        lines += ["", *table(("id", "name", "user", "group", "asks for", "runs at most until"), running)]
    return lines


def _whose(job: Json) -> tuple[str, ...]:
    return (str(job["id"]), job["name"], job["user"] or NONE, job["group"], request_text(job["request"]))


def quota(reply: Json) -> list[str]:
    """Say what the groups of a user own and use, and what of it is the user's."""
    if not reply["groups"]:
        return [f"{reply['user']} is in no group of the policy: CPU only."]
    rows = []
    for group in reply["groups"]:
        for name, label, write in AMOUNTS:
            rows.append(
                (
                    group["name"] if name == AMOUNTS[0][0] else "",
                    label,
                    write(group["used"].get(name, 0)),
                    _limit(group["quota"].get(name), write),
                    *_own(group["user"], name, write),
                )
            )
    lines = table(("group", "", "used", "quota", "by you", "your limit"), rows)
    for group in reply["groups"]:
        if group.get("over_since"):
            lines.append(f"{group['name']} is over quota since {when(group['over_since'])}.")
    return lines


AMOUNTS = (("gpus_milli", "GPUs", milli), ("cpus_milli", "CPUs", milli), ("memory_mib", "memory", size))


def _own(user: Json, name: str, write: Any) -> tuple[str, str]:
    """Return what the user uses of an amount, and the user's own limit."""
    used, limit = user["used"].get(name), user["limits"].get(name)
    return NONE if used is None else write(used), _limit(limit, write)


def _limit(amount: int | None, write: Any) -> str:
    return NONE if amount is None else str(write(amount))


def pool(reply: Json) -> list[str]:
    """Say which cards there are and who is on them."""
    rows = [
        (
            node["name"],
            str(gpu["index"]),
            gpu["model"],
            size(gpu["memory_mib"]),
            gpu["partition"] or NONE,
            on_card(gpu),
        )
        for node in reply["nodes"]
        for gpu in node["gpus"]
    ]
    lines = [reply["describe"], *(reply.get("inactive") or [])]
    if reply.get("policy_error"):
        lines.append(f"The policy file is not in force: {reply['policy_error']}")
    return [*lines, "", *table(("node", "gpu", "model", "memory", "partition", "used by"), rows)]


def on_card(gpu: Json) -> str:
    """Say who uses one card, or why nobody can."""
    if not gpu["available"]:
        return f"out of use: {gpu['because']}"
    users = [
        f"{lease['user'] or lease['group']} ({lease['kind']}, {size(lease['mib'])})"
        for lease in gpu["leases"]
    ]
    strangers = [f"process {found['pid']} of no lease" for found in gpu["strangers"]]
    return ", ".join([*users, *strangers]) or "free"


def job(found: Json) -> list[str]:
    """Say everything about one job."""
    rows = [
        ("asks for", request_text(found["request"])),
        ("time limit", duration(found["time_s"])),
        ("group, priority", f"{found['group']}, {found['priority']}"),
        ("submitted", when(found["submitted_at"])),
        ("started", when(found.get("started_at"))),
        ("ended", when(found.get("ended_at"))),
        ("runs", str(found["attempt"])),
        ("cards", placement(found.get("placement"))),
        ("progress", progress(found.get("progress"))),
        ("working folder", found.get("workdir") or NONE),
        ("output folder", found.get("out") or NONE),
        ("log", found.get("log") or NONE),
    ]
    known = [(label, text) for label, text in rows if text != NONE]
    head = f"Job {found['id']} ({found['name']}, {found['kind']}): {found['state'].replace('_', ' ')}"
    return [head, standing(found), *table(None, known), *found.get("warnings", [])]


def why(found: Json) -> list[str]:
    """Say what a job waits for and what would clear it, or why it ended as it did."""
    lines = [f"Job {found['id']} ({found['name']}): {found['state'].replace('_', ' ')}", standing(found)]
    waiting, diagnosis = found.get("waiting"), found.get("diagnosis")
    if waiting and waiting.get("clears"):
        lines.append(waiting["clears"])
    if diagnosis:
        lines += [text for text in (diagnosis["summary"], diagnosis.get("hint")) if text]
        lines += [f"    {line}" for line in diagnosis.get("lines") or ()]
    return lines


def placement(found: Json | None) -> str:
    """Say on which cards work runs, and how well it is kept apart from others."""
    if not found:
        return NONE
    cards = ", ".join(f"{gpu['node']}:{gpu['index']} ({size(gpu['mib'])})" for gpu in found["gpus"])
    where = cards or ", ".join(found["nodes"])
    return f"{where}; {found['mode']}, isolation {found['isolation']}" if cards else where


def progress(found: Json | None) -> str:
    """Say how far a job is and the values it reported."""
    if not found:
        return NONE
    fraction = found.get("fraction")
    texts = [] if fraction is None else [f"{100 * fraction:.0f} %"]
    texts += [f"{name} {_number(value)}" for name, value in (found.get("values") or {}).items()]
    return ", ".join(texts) or NONE


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def lease_waits(lease: Json) -> str:
    """Say what a lease waits for."""
    return f"Waiting: {(lease.get('waiting') or {}).get('message') or 'for its turn.'}{_expected(lease.get('waiting') or {})}"


def lease_held(lease: Json) -> str:
    """Say what was granted."""
    until = f", at most until {when(lease['expires_at'])}" if lease.get("expires_at") else ""
    return f"Lease {lease['id']}: {placement(lease.get('placement'))}{until}."


# -- layout --------------------------------------------------------------------------------------


def table(titles: Sequence[str] | None, rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay rows out in columns as wide as their widest cell; the last column is as long as it wants."""
    lines = [tuple(str(cell) for cell in row) for row in ([titles] if titles else []) + list(rows)]
    widths = (
        [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)] if lines else []
    )
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[-1]]).rstrip()
        for line in lines
    ]
