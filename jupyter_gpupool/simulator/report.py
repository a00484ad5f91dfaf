"""The report of one or several simulations: a page that needs nothing but itself.

Owns: which tables and plots there are, in light and dark. Never: a figure's definition (`figures`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise

from jupyter_gpupool.client.text import duration, plural
from jupyter_gpupool.pages.page import page
from jupyter_gpupool.pages.plots import areas, bars, curves
from jupyter_gpupool.simulator.figures import LABELS, Life, Span, lives, mean, percentile, shown, touched
from jupyter_gpupool.simulator.play import Result

STEPS = 168
MOST_BARS = 20
HOUR, DAY = 3600, 86400


def html(results: Sequence[Result], workload: str) -> str:
    """Return the page."""
    parts = [_span(results[0]), _figures(results)]
    for result in results:
        there = lives(result.pool, result.events)
        jobs = [life for life in there.values() if life.kind == "job"]
        parts += [
            f"<h2>{escape(result.name)}</h2>",
            _use(result, there.values()),
            _waits("Waits by group", jobs, lambda life: life.group),
            _waits("Waits by user", jobs, lambda life: life.user),
            _errors(jobs),
        ]
    return page(f"Simulation of {workload}", parts)


def _span(result: Result) -> str:
    pool = result.pool
    cards, nodes = len(pool["gpus"]), len({card["node"] for card in pool["gpus"]})
    start = datetime.fromisoformat(pool["start"])
    return (
        f"<p>{plural(cards, 'card')} in {plural(nodes, 'node')}, {duration(pool['horizon_s'])} "
        f"from {start:%A %Y-%m-%d %H:%M} UTC.</p>"
    )


def _figures(results: Sequence[Result]) -> str:
    head = "".join(f'<th scope="col">{escape(result.name)}</th>' for result in results)
    rows = []
    for name, label in LABELS.items():
        cells = "".join(f"<td>{escape(shown(name, result.figures[name]))}</td>" for result in results)
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _use(result: Result, there: Iterable[Life]) -> str:
    """Draw how many cards of each partition had a lease, over the time."""
    pool, horizon = result.pool, result.pool["horizon_s"]
    partition = {card["gpu"]: card["partition"] for card in pool["gpus"]}
    edges = [horizon * step / STEPS for step in range(STEPS + 1)]
    layers = {name: [0.0] * STEPS for name in sorted(set(partition.values()))}
    for gpu, spans in touched(there).items():
        _add(layers[partition[gpu]], spans, horizon / STEPS)
    plot = areas(edges, layers, len(partition), _days(pool["start"], horizon))
    return f"<h3>Cards in use, by partition</h3>{plot}"


def _add(layer: list[float], spans: Iterable[Span], step: float) -> None:
    """Add to each step the part of it that lies in the spans."""
    for first, last in spans:
        for number in range(int(first // step), min(len(layer), int(last // step) + 1)):
            overlap = min(last, (number + 1) * step) - max(first, number * step)
            layer[number] += max(0.0, overlap) / step


def _days(start: str, horizon: int) -> list[tuple[float, str]]:
    """Return about seven midnights, or the hours of a short time."""
    begin = datetime.fromisoformat(start)
    if horizon < 2 * DAY:
        return [(at, f"{begin + timedelta(seconds=at):%H:%M}") for at in range(0, horizon + 1, 6 * HOUR)]
    midnight = begin.replace(hour=0, minute=0, second=0)
    every = -(-horizon // DAY // 7)
    days = [midnight + timedelta(days=day) for day in range(0, horizon // DAY + 2, every)]
    places = [((day - begin).total_seconds(), f"{day:%a %d %b}") for day in days]
    return [(at, text) for at, text in places if 0 <= at <= horizon]


def _waits(title: str, jobs: Iterable[Life], owner: Callable[[Life], str]) -> str:
    """Draw the mean wait of each owner's completed jobs, the longest first."""
    waits: Mapping[str, list[int]] = defaultdict(list)
    for life in jobs:
        if life.wait is not None:
            waits[owner(life)].append(life.wait)
    rows = [
        (
            name,
            mean(found) or 0.0,
            f"{duration(mean(found) or 0)}; 95 %: {duration(percentile(found, 95) or 0)}",
        )
        for name, found in waits.items()
    ]
    rows.sort(key=lambda row: -row[1])
    left_out = f"<p>The {MOST_BARS} longest of {len(rows)}.</p>" if len(rows) > MOST_BARS else ""
    return f"<h3>{title}</h3><p>Mean, and what 95 % do not exceed.</p>{left_out}{bars(rows[:MOST_BARS])}"


def _errors(jobs: Sequence[Life]) -> str:
    """Draw how far from the truth the first promise and the estimate at submission were."""
    found = {
        "expected at submission": [
            abs(life.expected - life.first_start)
            for life in jobs
            if life.eta_error is not None and life.expected is not None and life.first_start is not None
        ],
        "first promise": [
            abs(life.promised - life.first_start)
            for life in jobs
            if life.promised is not None and life.first_start is not None
        ],
    }
    lines = {
        f"{name} ({plural(len(errors), 'job')})": _distribution(errors)
        for name, errors in found.items()
        if errors
    }
    if not lines:
        return ""
    highest = max(points[-1][0] for points in lines.values())
    step = next((s for s in (0.25, 1, 6, 24, 72, 168) if highest / s <= 12), highest / 10)
    ticks = [(at * step, f"{at * step:g}") for at in range(int(highest / step) + 2)]
    plot = curves(lines, ticks, "hours off")
    return f"<h3>Promises and estimates</h3><p>Which part of them was off by so much, or less.</p>{plot}"


def _distribution(seconds: Sequence[int]) -> list[tuple[float, float]]:
    """Return the cumulative distribution, in hours, at a hundred places at most."""
    values = sorted(value / HOUR for value in seconds)
    places = sorted({len(values) * part // 100 for part in range(100)} | {len(values) - 1})
    points = [(0.0, 0.0), *((values[place], (place + 1) / len(values)) for place in places)]
    return [one for one, other in pairwise([*points, (-1.0, 0.0)]) if one != other]
