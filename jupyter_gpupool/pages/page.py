"""One HTML page: its head, its style in light and dark.

Owns: what all pages look like. Never: what is on one.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d4d9df; --soft: #57606a;
  --0: #2f6fb0; --1: #d9822b; --2: #3a9b6b; --3: #b4517f; --4: #7a63c0; --5: #8c7a3a; --6: #3b9aa5;
  --7: #8a8f98 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --paper: #15181c; --line: #3a4048; --soft: #a0a8b2;
    --0: #6ba6e0; --1: #f0a95c; --2: #6cc79a; --3: #e08cb3; --4: #a996ea; --5: #c7b46a; --6: #6fc9d3;
    --7: #a9aeb6 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.5rem } h3 { font-size: 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { padding: .25rem .8rem; border-bottom: 1px solid var(--line) }
th { text-align: left; font-weight: 600 } td { text-align: right; font-variant-numeric: tabular-nums }
p { color: var(--soft) } .plot { overflow-x: auto }
svg { width: 100%; min-width: 40rem; height: auto; font-size: 12px } svg text { fill: var(--ink) }
.grid { stroke: var(--line) } .tick { stroke: var(--ink) } polyline { fill: none; stroke-width: 2 }
"""
_COLOURS = "".join(f".c{n} {{ fill: var(--{n}) }} .s{n} {{ stroke: var(--{n}) }}\n" for n in range(8))


def page(title: str, parts: Iterable[str]) -> str:
    """Return a page of parts that are HTML already, under its title."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_STYLE}{_COLOURS}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>\n"
    )
