"""What is wrong with a policy, and where in its file.

Owns: `Problem`, `PolicyError` and the map from keys to lines. Never: the rules themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong: where (line from 1, key), what with the numbers, and what to do."""

    line: int
    key: str
    message: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.key}: " if self.key else ""
        return f"{where}{self.message} {self.remedy}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem before its line is known."""

    path: Path
    message: str
    remedy: str


class PolicyError(ValueError):
    """A policy file that cannot be used; `str()` gives one line per problem."""

    def __init__(self, problems: Sequence[Problem], source: str) -> None:
        self.problems = sorted(problems)
        super().__init__("\n".join(f"{source}:{problem.line}: {problem}" for problem in self.problems))


@dataclass(frozen=True, slots=True)
class SourceMap:
    """The line of each key of a file; never part of what a policy says, so all are equal."""

    lines: Mapping[Path, int] = field(default_factory=dict, compare=False)

    def locate(self, path: Path) -> tuple[Path, int]:
        """Return the longest part of `path` that is in the file, and its line.

        Elements that the file does not have (tags of a union, say) are passed over.
        """
        known: Path = ()
        for element in path:
            if (*known, element) in self.lines:
                known = (*known, element)
        return known, self.lines.get(known, 1)

    def problem(self, finding: Finding) -> Problem:
        """Return `finding` with its line and its key as people write it."""
        _, line = self.locate(finding.path)
        return Problem(line, dotted(finding.path), finding.message, finding.remedy)


def dotted(path: Path) -> str:
    """Return a key as people write it: ``partitions.development.slices[0].share``."""
    text = ""
    for element in path:
        text += f"[{element}]" if isinstance(element, int) else f".{element}" if text else str(element)
    return text


def one_of(name: str, known: Sequence[str], *, example: str | None = None) -> str:
    """Return the remedy for an unknown name: the nearest known one, an example, or all of them."""
    spelled = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    if near:
        return f'Did you mean "{spelled[near[0]]}"?'
    if example is not None:
        return f"Write a name such as {example}."
    return (
        f"Write one of: {', '.join(known)}." if known else "The policy has none: define it, or remove this."
    )
