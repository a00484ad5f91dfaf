"""Cells of CSV files that spreadsheets open.

Owns: that no name is taken for a formula, and how it is read back. Never: rows or columns.
"""

from __future__ import annotations

_FORMULA = ("=", "+", "-", "@")


def cell(value: object) -> object:
    """Return a value for a spreadsheet, which must take no name for a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def read_cell(text: str) -> str:
    """Return the name that `cell` has written."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(_FORMULA) else text
