"""The rules of ``.gitignore`` files.

Owns: reading patterns and deciding about paths. Never: walking a folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One line of a ``.gitignore``."""

    pattern: re.Pattern[str]
    negated: bool
    folders_only: bool


def parse(text: str) -> list[Rule]:
    """Return the rules of one file, in order."""
    rules = []
    for raw in text.splitlines():
        line = re.sub(r"(?<!\\)\s+$", "", raw)
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        line = line[1:] if line.startswith(("\\#", "\\!")) else line
        folders_only = line.endswith("/")
        rules.append(Rule(re.compile(_expression(line.rstrip("/"))), negated, folders_only))
    return rules


def ignored(rules: list[tuple[str, list[Rule]]], path: str, is_folder: bool) -> bool:
    """Tell whether `path` is ignored; the last rule that matches decides.

    Parameters
    ----------
    rules : list of (folder, rules)
        From the top folder (``""``) down; folders end with a slash.
    path : str
        Relative to the top folder, with slashes.
    """
    verdict = False
    for folder, own in rules:
        if path.startswith(folder):
            below = path[len(folder) :]
            for rule in own:
                if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(below):
                    verdict = not rule.negated
    return verdict


def _expression(pattern: str) -> str:
    """Translate one pattern: with a slash inside it counts from its own folder, else it fits anywhere."""
    anchored = "/" in pattern
    pattern = pattern[1:] if pattern.startswith("/") else pattern
    parts = [r"(?:.*/)?"] if not anchored else []
    position = 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**/"):
            parts.append(r"(?:.*/)?")
            position += 3
        elif rest == "**":
            parts.append(".*")
            position += 2
        elif rest[0] == "*":
            parts.append("[^/]*")
            position += 1
        elif rest[0] == "?":
            parts.append("[^/]")
            position += 1
        elif found := re.match(r"\[(!?)([^\]]+)\]", rest):
            parts.append(f"[{'^' if found[1] else ''}{found[2]}]")
            position += found.end()
        else:
            escaped = rest[0] == "\\" and len(rest) > 1
            parts.append(re.escape(rest[1] if escaped else rest[0]))
            position += 2 if escaped else 1
    return "".join(parts)
