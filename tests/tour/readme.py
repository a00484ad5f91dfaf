"""Reads the tour out of the README: each ```python block, and the ```text block that it prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).parents[2] / "README.md"


class Step(NamedTuple):
    """A cell to run, and what the README says it prints; `…` stands for anything."""

    code: str
    expected: str


def steps() -> list[Step]:
    """Return the steps between the heading of the tour and the next heading."""
    text = README.read_text(encoding="utf-8")
    tour = re.search(r"^## A five-minute tour$(.*?)^## ", text, re.M | re.S)
    assert tour, "the README has no five-minute tour"
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", tour.group(1), re.M | re.S)
    found = []
    for (language, code), (following, expected) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language == "python":
            found.append(Step(code.rstrip(), expected.rstrip() if following == "text" else ""))
    return found


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is `expected`; `…` matches any text of a line, a line `…` any lines or none.

    How many spaces stand between two words does not matter: columns are as wide as the names in them.
    """
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + "\n"
        for line in _lines(expected)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]
