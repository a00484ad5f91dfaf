"""What the service answers, as plain text for terminals and notebooks.

Owns: pure functions from a reply (a dict) to lines, or to one line; the clock is a parameter. Whatever
is only simulated says so. Never: a request, HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_gpupool.client.following import ENDED
from jupyter_gpupool.client.grants import standing as standing_of_group
from jupyter_gpupool.client.phrases import (
    SIMULATED,
    cause_text,
    cores_text,
    counts_text,
    fate_text,
    lease_waits,
    moment_text,
    placement_text,
    request_text,
    sharing_text,
    soon_text,
    standing,
    starts_text,
    state_text,
    use_text,
)
from jupyter_gpupool.client.tasks import after_text, label, states_text, tasks_text, title
from jupyter_gpupool.client.text import (
    Clock,
    duration,
    memory,
    pairs,
    sentence,
    table,
    thousandths,
    when,
)

__all__ = [
    "dry_run",
    "job",
    "jobs",
    "lease_held",
    "lease_waits",
    "memory",
    "on_card",
    "overview",
    "placement_text",
    "pool",
    "queue",
    "quota",
    "request_text",
    "standing",
    "when",
    "why",
]

Json = Mapping[str, Any]

LONGEST_NAME = 40
RESOURCES = (
    ("gpus_milli", "GPUs", thousandths),
    ("cpus_milli", "CPU cores", thousandths),
    ("memory_mib", "host memory", memory),
)
USER_LIMITS = (
    ("sessions", "sessions", str),
    ("running_jobs", "running jobs", str),
    ("queued_jobs", "queued jobs", str),
    ("session_time", "time of a session", duration),
    ("job_time", "time of a job", duration),
)


# -- one job ---------------------------------------------------------------------------------------


def job(reply: Json, clock: Clock | None = None) -> list[str]:
    """Show everything about one job."""
    request, placement = reply["request"], reply.get("placement") or {}
    size = [request_text(request), cores_text(request["cpus_milli"])]
    if request.get("memory_mib"):
        size.append(f"{memory(request['memory_mib'])} of host memory")
    name = title(reply) + (f" {reply['name']}" if reply.get("name") else "")
    array, retries = reply.get("array"), reply.get("retries")
    rows = [
        ("state", f"{state_text(reply['state'])}{_attempt(reply)}"),
        ("standing", standing(reply, clock, state_shown=True)),
        ("array", tasks_text(array) if array else ""),
        ("user", f"{reply.get('user') or ''} ({reply['group']})".strip()),
        ("priority", reply["priority"]),
        ("asks for", ", ".join(size)),
        ("time limit", duration(reply["time_s"])),
        ("window", reply.get("window") or ""),
        ("partition", reply.get("partition") or ""),
        ("resumable", "yes" if reply.get("resumable") else ""),
        ("after", after_text(reply)),
        ("retries", f"{reply['failures']} of {retries} used" if retries else ""),
        ("runs on", placement_text(placement)),
        ("sharing", sharing_text(placement)),
        ("submitted", moment_text(reply.get("submitted_at"), clock)),
        ("started", moment_text(reply.get("started_at"), clock)),
        ("ended", moment_text(reply.get("ended_at"), clock)),
        ("exit code", "" if reply.get("exit_code") is None else str(reply["exit_code"])),
        ("folder", reply.get("workdir") or ""),
        ("output", reply.get("out") or ""),
        ("log", reply.get("log") or ""),
    ]
    lines = [f"{name} ({reply['kind']}{', simulated cards' if reply.get('simulated') else ''})"]
    lines += [f"  {line}" for line in pairs(rows)]
    return lines + [f"  Note: {warning}" for warning in reply.get("warnings") or ()]


def why(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say what a job waits for and what would clear it, why it ended as it did, and when it made room."""
    waiting, diagnosis = reply.get("waiting"), reply.get("diagnosis")
    lines = [f"{title(reply)} {fate_text(reply['state'])}."]
    if reply.get("array") and reply["state"] not in ENDED:
        lines.append(sentence(states_text(reply["array"])))
    if waiting and reply["state"] not in ENDED:
        lines.append(_reason(waiting["reason"], sentence(waiting["message"])))
        if waiting.get("clears"):
            lines.append(sentence(waiting["clears"]))
        if waiting.get("position"):
            lines.append(f"Its place in the queue is {waiting['position']}.")
        starts = starts_text(waiting, clock)
        lines.append(f"Expected start: {starts}." if starts else "No start can be expected yet.")
    elif reply["state"] not in ENDED:
        lines.append(sentence(standing(reply, clock)))
    said = [reply.get("reason"), reply.get("outcome")]
    if diagnosis:
        said += [cause_text(diagnosis), diagnosis.get("hint")]
    stops = [(stop["asked_at"], sentence(stop["message"])) for stop in reply.get("stops") or ()]
    known = {*lines, *(message for _, message in stops)}
    lines += [line for line in dict.fromkeys(sentence(text) for text in said if text) if line not in known]
    lines += [f"{when(asked, clock)}: {message}" for asked, message in stops]
    lines += [f"  | {line}" for line in (diagnosis or {}).get("lines") or ()]
    if reply["state"] in ENDED and reply.get("log"):
        lines.append(f"Its log: {reply['log']}")
    return [*lines, SIMULATED] if reply.get("simulated") else lines


def dry_run(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say where and when work would start, and how that depends on priority and window."""
    start = reply.get("would_start")
    lines = ["Nothing was submitted."]
    tasks = reply.get("tasks", 1)
    who = f"The first of its {tasks:,} tasks" if tasks > 1 else "It"
    if start:
        where = placement_text(reply.get("placement"))
        lines.append(f"{who} would start {soon_text(start, clock)}{f' on {where}' if where else ''}.")
    if reply.get("reason"):
        lines.append(f"{reply['reason']}: {sentence(reply['message'])}")
    elif reply.get("message") and not start:
        lines.append(sentence(reply["message"]))
    rows = [
        (other["priority"], other.get("window") or "any time", soon_text(other.get("expected_start"), clock))
        for other in reply.get("alternatives") or ()
    ]
    return lines + (["", *table(("priority", "window", "would start"), rows)] if rows else [])


# -- many jobs -------------------------------------------------------------------------------------


def jobs(found: Iterable[Json], clock: Clock | None = None) -> list[str]:
    """List one's own jobs."""
    found = list(found)
    if not found:
        return ["You have no jobs."]
    rows = [
        (
            label(each),
            _short(each.get("name") or ""),
            state_text(each["state"]),
            each["group"],
            request_text(each["request"]),
            when(each.get("submitted_at"), clock),
            standing(each, clock, state_shown=True),
        )
        for each in found
    ]
    columns = ("#id", "name", "state", "group", "gpu", "submitted", "standing")
    return table(columns, rows) + _simulated(found)


def _reason(name: str, message: str) -> str:
    """Write a reason with its name, once."""
    return message if message.startswith(f"{name}:") else f"{name}: {message}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def queue(reply: Json, clock: Clock | None = None) -> list[str]:
    """List what waits, in order, and what runs."""
    waiting, running = reply["waiting"], reply["running"]
    lines = [f"{counts_text(len(running), len(waiting))}."]
    if waiting:
        rows = [_waiting_row(each, clock) for each in waiting]
        columns = ("#", "#id", "user", "group", "priority", "gpu", "#limit", "starts", "waits for")
        lines += ["", *table(columns, rows)]
    if running:
        titles = ("#id", "user", "group", "priority", "gpu", "since", "ends by", "on")
        lines += ["", *table(titles, [_running_row(each, clock) for each in running])]
    return lines + _simulated([*waiting, *running])


# -- the pool --------------------------------------------------------------------------------------


def overview(whoami: Json, quota_reply: Json, queue_reply: Json, clock: Clock | None = None) -> list[str]:
    """Say in a few lines who one is, what is used, and how one's jobs stand."""
    user = whoami["user"]
    names = ", ".join(group["name"] for group in whoami["groups"]) or "no group"
    pool_name = f", pool {whoami['pool']}" if whoami.get("pool") else ""
    lines = [f"You are {user} ({names}){pool_name}."]
    for group in quota_reply["groups"]:
        used, owed = group["used"].get("gpus_milli", 0), group["quota"].get("gpus_milli")
        of = f" of {thousandths(owed)}" if owed is not None else ""
        mine = thousandths(group["user"]["used"].get("gpus_milli", 0))
        lines.append(f"{group['name']} uses {thousandths(used)}{of} GPUs, {mine} of them yours.")
    waiting, running = queue_reply["waiting"], queue_reply["running"]
    lines.append(f"{counts_text(len(running), len(waiting))}.")
    own = [each for each in [*running, *waiting] if each.get("user") == user]
    if own:
        lines += ["", *jobs(own, clock)]
    elif whoami.get("simulated"):
        lines.append(SIMULATED)
    return lines


def quota(reply: Json, clock: Clock | None = None) -> list[str]:
    """Show what each of the user's groups is owed and uses, and the user's own part."""
    if not reply["groups"]:
        return [f"{reply['user']} is in no group of this pool, so only CPUs can be used."]
    lines: list[str] = []
    for group in reply["groups"]:
        limits, mine = group["user"]["limits"], group["user"]["used"]
        rows = [
            (
                name,
                use_text(group["used"].get(key, 0), group["quota"].get(key), text),
                use_text(mine.get(key, 0), limits.get(key), text) if key in mine or key in limits else "",
            )
            for key, name, text in RESOURCES
        ]
        rows += [
            (name, "", use_text(mine.get(key, 0), limits.get(key), str))
            for key, name, _ in USER_LIMITS[:3]
            if key in mine or key in limits
        ]
        rows += [
            (name, "", f"at most {text(limits[key])}")
            for key, name, text in USER_LIMITS[3:]
            if limits.get(key) is not None
        ]
        lines += ["", f"Group {group['name']}:", *table(("resource", "group", "you"), rows)]
        lines += standing_of_group(group, clock)
    return lines[1:]


def pool(reply: Json, clock: Clock | None = None) -> list[str]:
    """List the cards and who is on them."""
    lines = [sentence(reply["describe"])]
    if reply.get("simulated") and "simulated" not in reply["describe"].lower():
        lines.append(SIMULATED)
    rows = [_card_row(node, card, clock) for node in reply["nodes"] for card in node["gpus"]]
    if rows:
        lines += ["", *table(("node", "#gpu", "model", "#memory", "#free", "partition", "used by"), rows)]
    down = [node for node in reply["nodes"] if not node["available"]]
    if down:
        lines += ["", *(f"{node['name']} takes no new work: {sentence(node['because'])}" for node in down)]
    if reply.get("partitions"):
        lines.append("")
        lines += table(("partition", "for", "#gpus", "slices"), map(_partition_row, reply["partitions"]))
    if reply.get("policy_error"):
        lines += ["", f"The policy file has an error, and the last good one holds: {reply['policy_error']}"]
    inactive = [f"Policy: {text}" for text in reply.get("inactive") or ()]
    return lines + (["", *inactive] if inactive else [])


def lease_held(lease: Json, clock: Clock | None = None) -> list[str]:
    """Say what a lease gives, where, until when, and how well it is kept apart."""
    where = placement_text(lease.get("placement"))
    until = f" until {when(lease['expires_at'], clock)}" if lease.get("expires_at") else ""
    simulated = " (simulated cards)" if lease.get("simulated") else ""
    on = f" on {where}" if where else ""
    lines = [f"Lease {lease['id']}{simulated}: {request_text(lease['request'])}{on}{until}."]
    sharing = sharing_text(lease.get("placement") or {})
    return [*lines, f"Sharing: {sharing}."] if sharing else lines


# -- parts -----------------------------------------------------------------------------------------


def _waiting_row(job: Json, clock: Clock | None) -> tuple[str, ...]:
    waiting = job.get("waiting") or {}
    waits = f"{states_text(job['array'])}; " if job.get("array") else ""
    return (
        str(waiting.get("position") or ""),
        label(job),
        job.get("user") or "",
        job["group"],
        job["priority"],
        request_text(job["request"]),
        duration(job["time_s"]),
        starts_text(waiting, clock, distance=False),
        (waits + (waiting.get("message") or waiting.get("reason") or "")).rstrip("."),
    )


def _running_row(job: Json, clock: Clock | None) -> tuple[str, ...]:
    return (
        label(job),
        job.get("user") or "",
        job["group"],
        job["priority"],
        request_text(job["request"]),
        when(job.get("started_at"), clock),
        when(job.get("expires_at"), clock),
        placement_text(job.get("placement")),
    )


def _card_row(node: Json, card: Json, clock: Clock | None) -> tuple[str, ...]:
    free = card.get("free_mib")
    return (
        node["name"],
        str(card["index"]),
        card["model"],
        memory(card["memory_mib"]),
        "" if free is None else memory(free),
        card.get("partition") or "",
        on_card(card, clock),
    )


def on_card(card: Json, clock: Clock | None = None) -> str:
    """Say who is on a card, or why nobody can be."""
    if not card["available"]:
        return f"not available: {card['because']}"
    users = [
        f"{lease.get('user') or lease['group']} {memory(lease['mib'])}" + _on_lease(lease, clock)
        for lease in card["leases"]
    ]
    for stranger in card["strangers"]:
        size = "" if stranger.get("mib") is None else f" {memory(stranger['mib'])}"
        users.append(f"pid {stranger['pid']}{size} (no lease)")
    return ", ".join(users) or "-"


def _on_lease(lease: Json, clock: Clock | None) -> str:
    """Say which job a lease is for, and until when its card is lent to it."""
    if not lease.get("job"):
        return ""
    lent = f", lent until {when(lease['lent_until'], clock)}" if lease.get("lent_until") else ""
    return f" (job {lease['job']}{lent})"


def _partition_row(partition: Json) -> tuple[str, ...]:
    purposes = ", ".join(f"{kind}s" for kind in partition["for"])
    return partition["name"], purposes, str(partition["gpus"]), "; ".join(map(str, partition["slices"]))


def _simulated(found: Iterable[Json]) -> list[str]:
    return ["", SIMULATED] if any(each.get("simulated") for each in found) else []


def _attempt(job: Json) -> str:
    return f" (run {job['attempt']})" if (job.get("attempt") or 0) > 1 else ""
