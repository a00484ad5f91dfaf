"""HTML for a notebook: elements, tables, bars.

Owns: escaping, and looks that follow JupyterLab's theme through its CSS variables. Never: a colour of its
own, or a colour as the only way to say something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "text-align:{};padding:2px 10px;vertical-align:top"
_TEXT = "color:var(--jp-ui-font-color1,inherit);font-size:var(--jp-ui-font-size1,13px)"
_TABLE = f"border-collapse:collapse;{_TEXT}"
_CAPTION = "text-align:left;font-weight:600;padding:4px 10px;caption-side:top;color:inherit"
_LINE = f"margin:2px 10px;{_TEXT}"
_NOTICE = f"border-left:3px solid var(--jp-warn-color1,currentColor);padding:2px 10px;margin:4px 0;{_TEXT}"
_BAR = "accent-color:var(--jp-brand-color1,auto);width:8em"
_STATE_COLOR = {
    "completed": "--jp-success-color1",
    "failed": "--jp-error-color1",
    "timed_out": "--jp-error-color1",
    "running": "--jp-brand-color1",
    "starting": "--jp-brand-color1",
}


class Html(str):
    """Text that is escaped already."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Build one element; children are escaped unless they are `Html`, attributes always."""
    shown = "".join(
        f' {key.replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(child if isinstance(child, Html) else escape(str(child)) for child in children)
    return Html(f"<{name}{shown}>{inside}</{name}>")


def together(*parts: Html) -> Html:
    """Put parts below each other."""
    return tag("div", *parts)


def line(*parts: object) -> Html:
    """Build a line of text."""
    return tag("p", *parts, style=_LINE)


def notice(text: str) -> Html:
    """Build a remark that must not be missed."""
    return tag("p", text, role="note", style=_NOTICE)


def preformatted(text: str, label: str) -> Html:
    """Build text as a program wrote it."""
    return tag("pre", text, role="log", aria_label=label, style="margin:2px 10px;white-space:pre-wrap")


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "none"
) -> Html:
    """Build a table with a caption and a heading for each column and row.

    A column whose title begins with ``#`` holds numbers and is aligned to the right.
    """
    aligns = ["right" if title.startswith("#") else "left" for title in columns]
    heads = [
        tag("th", title.lstrip("#"), scope="col", style=_CELL.format(align))
        for title, align in zip(columns, aligns)
    ]
    lines = [_row(row, aligns) for row in rows]
    if not lines:
        return line(f"{caption}: {empty}.")
    return _table(caption, tag("thead", tag("tr", *heads)), tag("tbody", *lines))


def facts(caption: str, rows: Iterable[Sequence[object]]) -> Html:
    """Build a table of names and values, without headings of columns."""
    return _table(caption, tag("tbody", *(_row(row, ("left", "left")) for row in rows)))


def _table(caption: str, *parts: Html) -> Html:
    return tag("table", tag("caption", caption, style=_CAPTION), *parts, style=_TABLE)


def _row(cells: Sequence[object], aligns: Sequence[str]) -> Html:
    head = tag("th", cells[0], scope="row", style=f"{_CELL.format(aligns[0])};font-weight:normal")
    rest = [tag("td", cell, style=_CELL.format(align)) for cell, align in zip(cells[1:], aligns[1:])]
    return tag("tr", head, *rest)


def state(name: str) -> Html:
    """Build a job's state: the word, coloured."""
    color = f"var({_STATE_COLOR.get(name, '--jp-ui-font-color1')},inherit)"
    return tag("span", name.replace("_", " "), style=f"color:{color};font-weight:600")


def progress(fraction: float | None, label: str) -> Html:
    """Build a bar for a fraction from 0 to 1; nothing where none was reported."""
    if fraction is None:
        return Html("")
    percent = max(0, min(100, round(100 * fraction)))
    return tag("progress", f"{percent} %", value=percent, max=100, aria_label=label, style=_BAR)


def gauge(used: int, limit: int | None, shown: str, label: str) -> Html:
    """Build what is used of a limit (both in one unit) as a gauge beside its numbers."""
    if not limit:
        return Html(escape(shown))
    bar = tag("meter", shown, value=min(used, limit), min=0, max=limit, aria_label=label, style="width:6em")
    return Html(f"{bar} {escape(shown)}")


def moment(iso: str | None, text: str) -> Html:
    """Build a time as people read it; the element keeps its exact form."""
    return tag("time", text, datetime=iso) if iso else Html("")
