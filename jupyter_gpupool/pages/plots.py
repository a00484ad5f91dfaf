"""Plots as SVG text: areas over time, bars, distributions.

Owns: scales, axes and marks. Colours are CSS classes (``c0`` …), so that the page decides on light and dark;
each mark has a title. Never: what is plotted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 760, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 30, 28
COLOURS = 8
_ROW = 22
_LABEL = 170

Point = tuple[float, float]
Tick = tuple[float, str]


def areas(
    x: Sequence[float], layers: Mapping[str, Sequence[float]], top: float, ticks: Sequence[Tick]
) -> str:
    """Draw layers on each other, each a value per step of `x` (one more than values); `top` is a line."""
    scale_x, scale_y = _scale(x[0], x[-1], LEFT, WIDTH - RIGHT), _scale(0, top, HEIGHT - BOTTOM, TOP)
    floor = [0.0] * (len(x) - 1)
    marks = []
    for number, (name, values) in enumerate(layers.items()):
        roof = [low + value for low, value in zip(floor, values, strict=True)]
        steps = [*_steps(x, roof), *reversed(_steps(x, floor))]
        path = " ".join(f"{scale_x(a):.1f},{scale_y(b):.1f}" for a, b in steps)
        marks.append(f'<polygon class="c{number % COLOURS}" points="{path}">{_title(name)}</polygon>')
        floor = roof
    return _figure(HEIGHT, [*marks, *_axes(scale_x, scale_y, ticks, _even(top)), _key(layers)])


def curves(lines: Mapping[str, Sequence[Point]], ticks: Sequence[Tick], unit: str) -> str:
    """Draw lines whose y is a part of 1 over x."""
    highest = max(ticks[-1][0], *(point[0] for points in lines.values() for point in points))
    scale_x, scale_y = (
        _scale(ticks[0][0], highest, LEFT, WIDTH - RIGHT),
        _scale(0, 1, HEIGHT - BOTTOM, TOP),
    )
    marks = []
    for number, (name, points) in enumerate(lines.items()):
        path = " ".join(f"{scale_x(a):.1f},{scale_y(b):.1f}" for a, b in points)
        marks.append(f'<polyline class="s{number % COLOURS}" points="{path}">{_title(name)}</polyline>')
    parts = [(part / 4, f"{25 * part} %") for part in range(5)]
    side = f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - BOTTOM - 6}" text-anchor="end">{escape(unit)}</text>'
    return _figure(HEIGHT, [*marks, *_axes(scale_x, scale_y, ticks, parts), side, _key(lines)])


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Draw a bar for each row: its name, its length, and its value in words."""
    longest = max((length for _, length, _ in rows), default=0) or 1
    room = WIDTH - _LABEL - 150
    marks = []
    for number, (name, length, text) in enumerate(rows):
        y = number * _ROW
        size = room * length / longest
        marks.append(
            f'<text x="{_LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="c0" x="{_LABEL}" y="{y + 2}" width="{size:.1f}" height="{_ROW - 6}">'
            f"{_title(f'{name}: {text}')}</rect>"
            f'<text x="{_LABEL + size + 6:.1f}" y="{y + 14}">{escape(text)}</text>'
        )
    return _figure(len(rows) * _ROW + 4, marks)


class _Scale:
    """Maps values to places in the picture."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self.first, self.last = first, last
        self._low = low
        self._slope = (last - first) / ((high - low) or 1)

    def __call__(self, value: float) -> float:
        return self.first + (value - self._low) * self._slope


def _scale(low: float, high: float, first: float, last: float) -> _Scale:
    return _Scale(low, high, first, last)


def _steps(x: Sequence[float], values: Sequence[float]) -> list[Point]:
    return [(at, value) for i, value in enumerate(values) for at in (x[i], x[i + 1])]


def _axes(x: _Scale, y: _Scale, ticks: Sequence[Tick], levels: Sequence[Tick]) -> list[str]:
    marks = [
        f'<line class="grid" x1="{x.first}" x2="{x.last}" y1="{y(at):.1f}" y2="{y(at):.1f}"/>'
        f'<text x="{x.first - 6}" y="{y(at) + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for at, text in levels
    ]
    marks += [
        f'<line class="tick" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{y.first}" y2="{y.first + 4}"/>'
        f'<text x="{x(at):.1f}" y="{y.first + 18}" text-anchor="middle">{escape(text)}</text>'
        for at, text in ticks
    ]
    return marks


def _even(top: float) -> list[Tick]:
    """Return about four round levels up to `top`."""
    step = max(1, 10 ** math.floor(math.log10(max(top, 1) / 4 or 1)))
    step = next(step * many for many in (1, 2, 5, 10) if step * many * 5 >= top)
    return [(level, f"{level:g}") for level in [*range(0, int(top) - step // 2, step), top]]


def _key(names: Mapping[str, object]) -> str:
    entries, at = [], LEFT
    for number, name in enumerate(names):
        entries.append(
            f'<rect class="c{number % COLOURS}" x="{at}" y="6" width="10" height="10"/>'
            f'<text x="{at + 14}" y="15">{escape(name)}</text>'
        )
        at += 30 + 7 * len(name)
    return "".join(entries)


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _figure(height: int, marks: Sequence[str]) -> str:
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(marks)}</svg>'
    return f'<div class="plot">{svg}</div>'
