"""What the service answers, as HTML for a notebook.

Owns: pure functions from a JSON reply to HTML, in the words of `jupyter_gpupool.client.render`, and
`Bundle`, which pairs both. Never: a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_gpupool.client import grants, past, render
from jupyter_gpupool.client.phrases import SIMULATED, counts_text, moment_text, soon_text, use_text
from jupyter_gpupool.client.tasks import after_text, label, tasks_text, title
from jupyter_gpupool.notebook.html import (
    Html,
    facts,
    gauge,
    line,
    moment,
    notice,
    preformatted,
    progress,
    state,
    table,
    tag,
    together,
)

Json = Mapping[str, Any]


class Bundle:
    """One answer in two forms: text for a terminal, HTML for a notebook; `extra` holds further forms."""

    def __init__(self, text: str, html: str, extra: Mapping[str, Any] | None = None):
        self.text = text
        self.html = html
        self.extra = dict(extra or {})

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": self.text, "text/html": str(self.html), **self.extra}


# -- one job ---------------------------------------------------------------------------------------


def job_line(found: Json) -> Html:
    """Build a job in one line."""
    name = f"{title(found)} ({found['name']}): "
    return line(name, state(found["state"]), " ", _bar(found), " ", render.standing(found, state_shown=True))


def job(found: Json) -> Html:
    """Build everything about one job."""
    rows = [
        ("state", state(found["state"])),
        ("standing", together(_bar(found), tag("span", f" {render.standing(found, state_shown=True)}"))),
        ("array", tasks_text(found["array"]) if found.get("array") else ""),
        ("group, priority", f"{found['group']}, {found['priority']}"),
        ("asks for", render.request_text(found["request"])),
        ("after", after_text(found)),
        ("runs on", render.placement_text(found["placement"])),
        ("submitted", _moment(found["submitted_at"])),
        ("started", _moment(found["started_at"])),
        ("ended", _moment(found["ended_at"])),
        ("exit code", "" if found["exit_code"] is None else found["exit_code"]),
        ("folder", found["workdir"] or ""),
        ("output", found["out"] or ""),
        ("log", found["log"] or ""),
    ]
    known = [(label, value) for label, value in rows if value != ""]
    name = f"{title(found)} {found['name']} ({found['kind']})"
    remarks = [*found["warnings"], *_simulated([found])]
    return together(facts(name, known), *map(notice, remarks))


def why(found: Json) -> Html:
    """Build what a job waits for, or why it ended as it did."""
    traceback = (found["diagnosis"] or {}).get("lines") or []
    head, *rest = [text for text in render.why(found) if not text.startswith("  | ")]
    log = [preformatted("\n".join(traceback), f"end of the log of job {found['id']}")] if traceback else []
    return together(line(tag("b", head)), *map(line, rest), *log)


def dry_run(reply: Json) -> Html:
    """Build where and when work would start."""
    texts = [text for text in render.dry_run({**reply, "alternatives": ()}) if text]
    rows = [
        (found["priority"], found["window"] or "any time", soon_text(found["expected_start"], None))
        for found in reply["alternatives"]
    ]
    others = [table("Otherwise", ("priority", "window", "would start"), rows)] if rows else []
    return together(*map(line, texts), *others)


# -- many jobs -------------------------------------------------------------------------------------


def jobs(reply: Json) -> Html:
    """Build the table of one's own jobs."""
    return _jobs("Your jobs", reply["jobs"])


def acted(reply: Json) -> Html:
    """Build the jobs that something was done to."""
    return together(*map(job_line, reply["jobs"]))


def queue(reply: Json) -> Html:
    """Build what waits, in order, and what runs."""
    waiting = [
        (place, *_whose(found), found["priority"], render.standing(found))
        for place, found in enumerate(reply["waiting"], 1)
    ]
    running = [(*_whose(found), _bar(found), render.standing(found)) for found in reply["running"]]
    whose = ("#id", "name", "user", "group", "gpu")
    return together(
        table("Waiting", ("#", *whose, "priority", "waits for"), waiting, "nothing"),
        table("Running", (*whose, "progress", "standing"), running, "nothing"),
        *map(notice, _simulated([*reply["waiting"], *reply["running"]])),
    )


# -- the pool --------------------------------------------------------------------------------------


def overview(who: Json, quota_reply: Json, queue_reply: Json) -> Html:
    """Build who one is, what is used, and how one's jobs stand."""
    own = [
        found for found in (*queue_reply["running"], *queue_reply["waiting"]) if found["user"] == who["user"]
    ]
    bare: Json = {"waiting": [], "running": []}
    head, *_ = render.overview(who, quota_reply, bare)
    counts = counts_text(len(queue_reply["running"]), len(queue_reply["waiting"]))
    simulated = [notice(SIMULATED)] if who["simulated"] else []
    return together(line(f"{head} {counts}."), quota(quota_reply), _jobs("Your jobs now", own), *simulated)


def quota(reply: Json) -> Html:
    """Build what the user's groups are owed and use, and the user's own part."""
    rows, remarks = [], []
    for group in reply["groups"]:
        limits, mine = group["user"]["limits"], group["user"]["used"]
        for key, name, text in render.RESOURCES:
            used, owed = group["used"].get(key, 0), group["quota"].get(key)
            share = gauge(used, owed, use_text(used, owed, text), f"{name} that {group['name']} uses")
            own = use_text(mine.get(key, 0), limits.get(key), text) if key in mine or key in limits else ""
            rows.append((group["name"], name, share, own))
        remarks += [f"{group['name']}: {text}" for text in grants.standing(group)]
    empty = f"{reply['user']} is in no group of this pool, so only CPUs can be used"
    columns = ("group", "", "the group", f"you ({reply['user']})")
    return together(table("Quota", columns, rows, empty), *map(notice, remarks))


def gpus(reply: Json) -> Html:
    """Build the cards and who is on them."""
    rows = [_card(node["name"], found) for node in reply["nodes"] for found in node["gpus"]]
    error = reply["policy_error"]
    remarks = [f"The policy file has an error, and the last good one holds: {error}"] if error else []
    remarks += [f"Policy: {text}" for text in reply["inactive"]]
    columns = ("card", "model", "leased", "partition", "used by")
    return together(line(reply["describe"]), table("Cards", columns, rows), *map(notice, remarks))


def report(reply: Json) -> Html:
    """Build who used how much."""
    tables = [
        table(
            past.TITLES[by],
            [each.title for each in columns],
            [[each.text(row) for each in columns] for row in rows],
        )
        for by, columns, rows in past.every_table(reply)
    ]
    return together(*map(line, past.sentences(reply)), *tables)


def history(reply: Json) -> Html:
    """Build who held what at a moment."""
    return together(*map(line, past.moment_sentences(reply)), table("Held", *past.holders(reply)))


# -- parts -----------------------------------------------------------------------------------------


def _jobs(caption: str, found: Sequence[Json]) -> Html:
    columns = ("#id", "name", "state", "group", "gpu", "submitted", "progress", "standing")
    rows = [
        (
            label(each),
            each["name"],
            state(each["state"]),
            each["group"],
            render.request_text(each["request"]),
            moment(each["submitted_at"], render.when(each["submitted_at"])),
            _bar(each),
            render.standing(each, state_shown=True),
        )
        for each in found
    ]
    return table(caption, columns, rows)


def _whose(found: Json) -> Sequence[object]:
    return (label(found), found["name"], found["user"], found["group"], render.request_text(found["request"]))


def _card(node: str, found: Json) -> Sequence[object]:
    leased = sum(lease["mib"] for lease in found["leases"])
    shown = use_text(leased, found["memory_mib"], render.memory)
    share = gauge(leased, found["memory_mib"], shown, f"memory leased of {node}:{found['index']}")
    return (
        f"{node}:{found['index']}",
        found["model"],
        share,
        found["partition"] or "",
        render.on_card(found),
    )


def _bar(found: Json) -> Html:
    return progress((found["progress"] or {}).get("fraction"), f"progress of job {found['id']}")


def _moment(iso: str | None) -> Html:
    return moment(iso, moment_text(iso, None))


def _simulated(found: Sequence[Json]) -> list[str]:
    return [SIMULATED] if any(each["simulated"] for each in found) else []


VIEWS: Mapping[str, Callable[[Json], Html]] = {
    "jobs": jobs,
    "queue": queue,
    "quota": quota,
    "gpus": gpus,
    "show": job,
    "why": why,
    "cancel": acted,
    "hold": acted,
    "release": acted,
    "requeue": acted,
    "extend": acted,
    "report": report,
    "history": history,
}
