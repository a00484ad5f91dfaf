"""The numbers of a simulation, out of its events alone.

Owns: the definitions. Never: how a figure is printed or drawn (`report`).

- ``jobs_per_week``: completions of jobs in (0, horizon], scaled to 168 h.
- ``held_hours_per_card_day``: each lease's share of its card's MiB, integrated over [0, horizon].
- ``touched_hours_per_card_day``: the time in which a card has any lease.
- ``job_wait_*``: end − submit − duration of completed jobs, where duration is the work that was to be done:
  time lost by waiting, by a slow start and by being stopped all count.
- ``session_wait_p95_s``: start − submit; a session that never started has waited until it was given up,
  or until the horizon.
- ``bounded_slowdown_mean``: max(1, (wait + duration) / max(duration, 10 s)) of completed jobs.
- ``eta_error_median``: |expected at submit − start| / (start − submit), of jobs that were told an expected
  start and waited a minute or longer.
- ``preemptions``: jobs stopped for others.

A percentile is the smallest value that so many of all do not exceed (nearest rank). A figure with nothing to
count is None.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpupool.client.text import duration
from jupyter_gpupool.simulator.journal import Event

LABELS = {
    "jobs_per_week": "jobs finished a week",
    "held_hours_per_card_day": "hours held, a card and day",
    "touched_hours_per_card_day": "hours in use, a card and day",
    "session_wait_p95_s": "wait of sessions, 95 %",
    "job_wait_mean_s": "wait of jobs, mean",
    "job_wait_p95_s": "wait of jobs, 95 %",
    "bounded_slowdown_mean": "bounded slowdown, mean",
    "eta_error_median": "error of expected starts, median",
    "preemptions": "jobs stopped for others",
    "jobs_submitted": "jobs submitted",
    "jobs_completed": "jobs completed",
    "jobs_unfinished": "jobs not finished",
    "sessions": "sessions",
    "horizon_s": "time played",
}
WEEK_S, DAY_S, HOUR_S = 7 * 86400, 86400, 3600
LEAST_DURATION_S = 10
LEAST_WAIT_S = 60

Span = tuple[int, int]


@dataclass(slots=True)
class Life:
    """What the events say of one job or session; times in seconds after the start."""

    kind: str
    group: str
    user: str
    submit: int
    gpus: int
    limit: int
    duration: int | None = None
    expected: int | None = None
    first_start: int | None = None
    end: int | None = None
    outcome: str = ""
    promised: int | None = None
    runs: list[tuple[Span, list[Event]]] = field(default_factory=list)

    @property
    def wait(self) -> int | None:
        """The seconds that a completed job was not at work; None for all others."""
        if self.kind != "job" or self.outcome != "completed" or self.end is None or self.duration is None:
            return None
        return self.end - self.submit - self.duration

    @property
    def eta_error(self) -> float | None:
        """How far off the expected start was, as a part of the wait; None where it does not count."""
        if self.first_start is None or self.expected is None:
            return None
        waited = self.first_start - self.submit
        return None if waited < LEAST_WAIT_S else abs(self.expected - self.first_start) / waited


def lives(pool: Event, events: Iterable[Event]) -> dict[int, Life]:
    """Gather what happened to each job and session; leases live at the horizon are cut there."""
    horizon = pool["horizon_s"]
    found: dict[int, Life] = {}
    since: dict[int, tuple[int, list[Event]]] = {}
    for event in events:
        if "id" not in event:
            continue
        id, t = event["id"], event["t"]
        if event["event"] == "submit":
            found[id] = Life(
                event["kind"],
                event["group"],
                event["user"],
                t,
                event["request"]["gpus"],
                event["limit_s"],
                event.get("duration_s"),
            )
        life = found[id]
        if event["event"] == "promise" and life.promised is None:
            life.promised = event["start_t"]
        elif event["event"] == "estimate":
            life.expected = event["start_t"]
        elif event["event"] == "start":
            life.first_start = t if life.first_start is None else life.first_start
            since[id] = t, event["gpus"]
        elif event["event"] == "end":
            life.end, life.outcome = t, event["outcome"]
            if id in since:
                begun, gpus = since.pop(id)
                life.runs.append(((begun, min(t, horizon)), gpus))
    for id, (begun, gpus) in since.items():
        found[id].runs.append(((begun, horizon), gpus))
    return found


def figures(pool: Event, events: Sequence[Event]) -> dict[str, Any]:
    """Return every figure by its name."""
    horizon = pool["horizon_s"]
    there = lives(pool, events)
    jobs = [life for life in there.values() if life.kind == "job"]
    waits = [wait for life in jobs if (wait := life.wait) is not None]
    done = [life for life in jobs if life.wait is not None]
    finished = sum(life.outcome == "completed" and 0 < (life.end or 0) <= horizon for life in jobs)
    card_days = len(pool["gpus"]) * horizon / DAY_S
    errors = [error for life in jobs if (error := life.eta_error) is not None]
    return {
        "jobs_per_week": finished * WEEK_S / horizon if horizon else None,
        "held_hours_per_card_day": _held_s(pool, there.values()) / HOUR_S / card_days if card_days else None,
        "touched_hours_per_card_day": _touched_s(there.values()) / HOUR_S / card_days if card_days else None,
        "session_wait_p95_s": percentile(session_waits(there.values(), horizon), 95),
        "job_wait_mean_s": mean(waits),
        "job_wait_p95_s": percentile(waits, 95),
        "bounded_slowdown_mean": mean([_slowdown(life) for life in done]),
        "eta_error_median": statistics.median(errors) if errors else None,
        "preemptions": sum(event["event"] == "end" and event["outcome"] == "preempted" for event in events),
        "jobs_submitted": len(jobs),
        "jobs_completed": finished,
        "jobs_unfinished": sum(life.end is None for life in jobs),
        "sessions": len(there) - len(jobs),
        "horizon_s": horizon,
    }


def session_waits(there: Iterable[Life], horizon: int) -> list[int]:
    """Return how long each session waited."""
    waits = []
    for life in there:
        if life.kind == "session":
            over = horizon if life.end is None else life.end
            waits.append((over if life.first_start is None else life.first_start) - life.submit)
    return waits


def shown(name: str, value: float | None) -> str:
    """Write a figure for people."""
    if value is None:
        return "–"
    if name.endswith("_s"):
        return duration(value)
    if name == "eta_error_median":
        return f"{100 * value:.0f} % of the wait"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that `percent` of all do not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1] if values else None


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return sum(values) / len(values) if values else None


def touched(there: Iterable[Life]) -> dict[str, list[Span]]:
    """Return when each card had any lease: sorted, disjoint spans."""
    spans: dict[str, list[Span]] = {}
    for life in there:
        for span, gpus in life.runs:
            for share in gpus:
                spans.setdefault(share["gpu"], []).append(span)
    return {gpu: _merged(found) for gpu, found in spans.items()}


def _held_s(pool: Event, there: Iterable[Life]) -> float:
    size: Mapping[str, int] = {card["gpu"]: card["memory_mib"] for card in pool["gpus"]}
    return sum(
        float((last - first) * share["memory_mib"] / size[share["gpu"]])
        for life in there
        for (first, last), gpus in life.runs
        for share in gpus
    )


def _touched_s(there: Iterable[Life]) -> int:
    return sum(last - first for spans in touched(there).values() for first, last in spans)


def _slowdown(life: Life) -> float:
    assert life.wait is not None
    assert life.duration is not None
    return max(1.0, (life.wait + life.duration) / max(life.duration, LEAST_DURATION_S))


def _merged(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
