"""The report of a period as one page with plots.

Owns: which plots there are. Never: a figure, or how a plot is drawn (see `pages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from jupyter_gpupool.client import past
from jupyter_gpupool.client.text import Clock, duration
from jupyter_gpupool.pages.page import page
from jupyter_gpupool.pages.plots import areas, bars

Json = Mapping[str, Any]

MOST_BARS = 20
MOST_TICKS = 8


def html(reply: Json, clock: Clock | None = None) -> str:
    """Return the page."""
    said = past.sentences(reply, clock)
    parts = [*(f"<p>{escape(line)}</p>" for line in said)]
    parts += [_days(reply), _groups(reply), _users(reply), _waits(reply)]
    parts += [_table(past.TITLES[by], columns, rows) for by, columns, rows in past.every_table(reply)]
    return page("Use of the GPU pool", parts)


def _days(reply: Json) -> str:
    """Draw the hours of each day in which a card was in use, and in which its memory was held."""
    days = reply["days"]
    if not days:
        return ""
    held = [day["held_hours_per_card_day"] or 0.0 for day in days]
    more = [
        max(0.0, (day["touched_hours_per_card_day"] or 0.0) - part)
        for day, part in zip(days, held, strict=True)
    ]
    every = -(-len(days) // MOST_TICKS)
    ticks = [(float(at), day["date"][5:]) for at, day in enumerate(days) if at % every == 0]
    layers = {"held, by memory": held, "in use besides": more}
    plot = areas([float(at) for at in range(len(days) + 1)], layers, 24, ticks)
    return f"<h2>Hours in use, for a card and day</h2>{plot}"


def _groups(reply: Json) -> str:
    """Draw what each group used beside what it was owed."""
    rows = [
        (row["group"], row["gpu_hours"], _against(row))
        for row in reply["groups"]
        if row["gpu_hours"] or row["budget"]
    ]
    return _bars("GPU hours by group", rows)


def _against(row: Json) -> str:
    text = f"{row['gpu_hours']:,.1f} h"
    if row["quota_gpu_hours"]:
        text += f" of {row['quota_gpu_hours']:,.0f} owed"
    if budget := row["budget"]:
        text += f"; budget {budget['spent_gpu_hours']:,.0f} of {budget['gpu_hours']:,.0f}"
    return text


def _users(reply: Json) -> str:
    rows = [
        (row["user"] or f"others in {row['group']}", row["gpu_hours"], f"{row['gpu_hours']:,.1f} h")
        for row in reply["use"]
        if row["gpu_hours"]
    ]
    return _bars("GPU hours by user", rows)


def _waits(reply: Json) -> str:
    """Draw how long the jobs of each group waited on average."""
    rows = [
        (
            row["group"],
            row["wait_mean_s"],
            f"{duration(row['wait_mean_s'])}; 95 %: {duration(row['wait_p95_s'])}",
        )
        for row in reply["groups"]
        if row["wait_mean_s"] is not None
    ]
    return _bars("Waits of jobs by group, on average", rows)


def _bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    if not rows:
        return ""
    longest = sorted(rows, key=lambda row: -row[1])
    left_out = f"<p>The {MOST_BARS} longest of {len(rows)}.</p>" if len(rows) > MOST_BARS else ""
    return f"<h2>{title}</h2>{left_out}{bars(longest[:MOST_BARS])}"


def _table(title: str, columns: Sequence[past.Column], rows: Sequence[Json]) -> str:
    head = "".join(f'<th scope="col">{escape(column.title.lstrip("#"))}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(column.text(row))}</td>' for column in columns)}</tr>" for row in rows
    )
    return f"<h2>{title}</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
