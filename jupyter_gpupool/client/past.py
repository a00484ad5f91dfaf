"""What was, as text and as rows: the report of a period, and who held what at a moment.

Owns: the words and columns. Pure. Never: the figures; those are the service's.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_gpupool.client.phrases import state_text
from jupyter_gpupool.client.spreadsheet import cell
from jupyter_gpupool.client.text import Clock, duration, memory, percent, plural, table, thousandths, when

Json = Mapping[str, Any]

OUTCOMES = ("completed", "failed", "timed_out", "cancelled")
TITLES = {"user": "By user", "group": "By group", "day": "By day", "card": "By card"}
BY = tuple(TITLES)
_ROWS = {"user": "use", "group": "groups", "day": "days", "card": "cards"}
_USED = (
    *("gpu_hours", "charged_gpu_hours", "measured_gpu_hours", "utilisation", "submitted", *OUTCOMES),
    *("wait_mean_s", "wait_p95_s", "session_wait_p95_s", "stops", "sessions", "idle_sessions", "idle_hours"),
)
_CARDS = ("touched_hours_per_card_day", "held_hours_per_card_day")
_FIELDS = {
    "user": ("group", "user", *_USED),
    "group": ("group", "quota_gpu_hours", "budget_gpu_hours", "budget_spent_gpu_hours", *_USED),
    "day": ("date", *_CARDS, *_USED),
    "card": ("node", "index", "uuid", *_CARDS, "utilisation"),
}


class Column(NamedTuple):
    """A column of a table: its title, and its text for a row of the report."""

    title: str
    text: Callable[[Json], str]


def report(reply: Json, clock: Clock | None = None, by: str | None = None) -> list[str]:
    """Say what was used in a period: a few sentences, then a table for each of `BY`, or for one."""
    lines = sentences(reply, clock)
    for each in (by,) if by else BY:
        if found := rows(reply, each):
            columns = columns_of(each)
            cells = [[column.text(row) for column in columns] for row in found]
            lines += ["", *table([column.title for column in columns], cells)]
    return lines


def sentences(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say in words what the whole period comes to."""
    total, whose = reply["total"], _whose(reply)
    used, capacity = total["gpu_hours"], reply["capacity_gpu_hours"]
    share = f" ({percent(used / capacity)})" if capacity else ""
    period = f"{when(reply['since'], clock)} to {when(reply['until'], clock)}"
    lines = [f"{period}{whose}: {used:,.1f} of {capacity:,.1f} GPU hours were used{share}."]
    if total["touched_hours_per_card_day"] is not None:
        lines.append(
            f"Each card was in use {total['touched_hours_per_card_day']:.1f} hours a day; by its memory, "
            f"{total['held_hours_per_card_day']:.1f}."
        )
    lines.append(_measured(reply))
    ended = ", ".join(
        f"{total['ended'][one]} {state_text(one)}" for one in OUTCOMES if total["ended"].get(one)
    )
    lines.append(f"{plural(total['submitted'], 'job was', 'jobs were')} submitted; ended: {ended or 'none'}.")
    if total["wait_mean_s"] is not None:
        lines.append(
            f"Jobs waited {duration(total['wait_mean_s'])} on average, 95 % of them at most "
            f"{duration(total['wait_p95_s'])}; {plural(total['stops'], 'run')} had to leave for others."
        )
    if total["sessions"]:
        idle = (
            f"{plural(total['idle_sessions'], 'time')} one was idle, {total['idle_hours']:.1f} hours in all"
        )
        wait = f"95 % waited at most {duration(total['session_wait_p95_s'] or 0)}"
        lines.append(f"{plural(total['sessions'], 'session')}: {wait}; {idle}.")
    return lines


def rows(reply: Json, by: str) -> list[Json]:
    """Return the rows by user, group, day or card."""
    found: list[Json] = list(reply[_ROWS[by]])
    return found


def columns_of(by: str) -> list[Column]:
    """Return the columns of a table for people."""
    first = {
        "user": [Column("group", _text("group")), Column("user", lambda row: row["user"] or "others")],
        "group": [
            Column("group", _text("group")),
            Column("#quota h", _hours("quota_gpu_hours")),
            Column("#budget", lambda row: _budget(row["budget"])),
        ],
        "day": [Column("day", _text("date"))],
        "card": [Column("card", lambda row: _card(row)), *_CARD_COLUMNS],
    }[by]
    if by == "card":
        return [*first, _BUSY]
    per_card = _CARD_COLUMNS if by == "day" else []
    return [*first, Column("#gpu h", _hours("gpu_hours")), *per_card, _BUSY, *_JOB_COLUMNS, *_SESSION_COLUMNS]


def as_csv(reply: Json, by: str) -> str:
    """Return the rows as CSV: names of columns, then numbers as they are; nothing where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_FIELDS[by])
    for row in rows(reply, by):
        flat = {**row, **dict.fromkeys(OUTCOMES, 0), **row.get("ended", {})}
        if budget := row.get("budget"):
            flat.update(
                budget_gpu_hours=budget["gpu_hours"], budget_spent_gpu_hours=budget["spent_gpu_hours"]
            )
        writer.writerow([cell(flat.get(name)) for name in _FIELDS[by]])
    return out.getvalue()


def history(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say who held what at a moment, and under which policy."""
    lines, (titles, held) = moment_sentences(reply, clock), holders(reply, clock)
    return [*lines, "", *table(titles, held)] if held else lines


def moment_sentences(reply: Json, clock: Clock | None = None) -> list[str]:
    """Say in words which policy held at a moment, and of how many cards nobody held anything."""
    policy = reply["policy"]
    under = (
        f"policy {policy['name']}, in force since {when(policy['since'], clock)}"
        if policy
        else "no known policy"
    )
    lines = [f"{when(reply['at'], clock)}, under {under}."]
    if reply["at"] < reply["known_since"]:
        lines.append(
            f"Records of what ended before {when(reply['known_since'], clock)} are kept no longer: more may "
            "have been held than is known here."
        )
    free = sum(1 for card in reply["cards"] if not card["holders"])
    if free:
        lines.append(f"Nobody held anything of {plural(free, 'card')}.")
    return lines


def holders(reply: Json, clock: Clock | None = None) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the titles and rows of who held what."""
    titles = ("card", "#memory", "#gpu", "for", "user", "group", "priority", "since", "until", "because")
    held: list[Sequence[str]] = [
        (_card(card), memory(one["mib"]), thousandths(one["gpu_milli"]), *_holder(one, clock))
        for card in reply["cards"]
        for one in card["holders"]
    ]
    return titles, [*held, *(("no card", "", "", *_holder(one, clock)) for one in reply["without_card"])]


# -- parts -----------------------------------------------------------------------------------------


def _whose(reply: Json) -> str:
    parts = [reply["user"] or "", f"group {reply['group']}" if reply["group"] else ""]
    named = ", ".join(part for part in parts if part)
    return f", {named}" if named else ""


def _measured(reply: Json) -> str:
    total = reply["total"]
    if total["utilisation"] is not None:
        measured = plural(round(total["measured_gpu_hours"]), "GPU hour")
        busy = percent(total["utilisation"])
        return f"The devices were busy {busy} of the time, over {measured} that were measured."
    if reply["simulated"]:
        return "How busy the devices were is not known: simulated cards measure nothing."
    return "How busy the devices were is not known: nothing was measured in this time."


def _text(name: str) -> Callable[[Json], str]:
    return lambda row: row[name] or ""


def _hours(name: str) -> Callable[[Json], str]:
    return lambda row: "" if row[name] is None else f"{row[name]:,.1f}"


def _count(name: str) -> Callable[[Json], str]:
    return lambda row: str(row[name] or "")


def _outcome(name: str) -> Callable[[Json], str]:
    return lambda row: str(row["ended"].get(name, ""))


def _wait(name: str) -> Callable[[Json], str]:
    return lambda row: "" if row[name] is None else duration(row[name])


def _budget(budget: Json | None) -> str:
    return f"{budget['spent_gpu_hours']:,.1f} of {budget['gpu_hours']:,.0f}" if budget else ""


def _card(card: Json) -> str:
    return card["uuid"] if card["node"] is None else f"{card['node']}:{card['index']}"


def _holder(holder: Json, clock: Clock | None) -> Sequence[str]:
    name = f" {holder['name']}" if holder["name"] else ""
    run = f" (run {holder['attempt']})" if holder["attempt"] > 1 else ""
    until = when(holder["until"], clock) if holder["until"] else "now"
    return (
        f"{holder['kind']} {holder['id']}{name}{run}",
        holder["user"] or "",
        holder["group"],
        holder["priority"],
        when(holder["since"], clock),
        until,
        holder["ended_because"] or "",
    )


_BUSY = Column("#busy", lambda row: "" if row["utilisation"] is None else percent(row["utilisation"]))
_CARD_COLUMNS = [
    Column("#in use h/day", _hours("touched_hours_per_card_day")),
    Column("#held h/day", _hours("held_hours_per_card_day")),
]
_JOB_COLUMNS = [
    Column("#jobs", _count("submitted")),
    *(Column(f"#{state_text(one)}", _outcome(one)) for one in OUTCOMES),
    Column("#wait", _wait("wait_mean_s")),
    Column("#wait 95 %", _wait("wait_p95_s")),
    Column("#stops", _count("stops")),
]
_SESSION_COLUMNS = [
    Column("#sessions", _count("sessions")),
    Column("#idle h", lambda row: f"{row['idle_hours']:.1f}" if row["idle_hours"] else ""),
]


def every_table(reply: Json) -> Iterable[tuple[str, list[Column], list[Json]]]:
    """Yield each table that has rows: what it is by, its columns, its rows."""
    for by in BY:
        if found := rows(reply, by):
            yield by, columns_of(by), found
