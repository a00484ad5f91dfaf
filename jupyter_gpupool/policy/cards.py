"""Which cards a partition names: patterns such as ``node1:*``, ``gpu-*:0-3`` or ``node2:5``.

Owns: the pattern's text, what it matches, and whether two patterns can match the same card.
Never: the real devices; cards come in as `CardInfo`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Protocol

from jupyter_gpupool.policy.units import UnitError

_PATTERN = re.compile(r"(?P<node>[^\s:\[\]]+):(?:\*|(?P<first>\d{1,3})(?:-(?P<last>\d{1,3}))?)")


class CardInfo(Protocol):
    """What the policy needs to know of one card."""

    @property
    def uuid(self) -> str:
        """The device's UUID."""

    @property
    def node(self) -> str:
        """The host's name."""

    @property
    def index(self) -> int:
        """The card's place in its host, from 0."""

    @property
    def model(self) -> str:
        """The product's name."""

    @property
    def memory_mib(self) -> int:
        """Capacity in MiB."""


class HostInfo(Protocol):
    """What the policy needs to know of one host."""

    @property
    def name(self) -> str:
        """The host's name."""

    @property
    def cpus_milli(self) -> int:
        """CPUs in milli-CPU."""

    @property
    def memory_mib(self) -> int:
        """Memory in MiB."""


@dataclass(frozen=True, slots=True)
class CardPattern:
    """A host name with ``*`` and ``?``, and the cards `first` to `last` of such a host."""

    node: str
    first: int
    last: int | None
    text: str

    def matches(self, card: CardInfo) -> bool:
        """Whether the pattern names this card."""
        return fnmatchcase(card.node, self.node) and self._has(card.index)

    def meets(self, other: CardPattern) -> bool:
        """Whether some card, present or not, would match both patterns."""
        later = max(self.first, other.first)
        return self._has(later) and other._has(later) and _names_meet(self.node, other.node)

    def _has(self, index: int) -> bool:
        return self.first <= index and (self.last is None or index <= self.last)


def parse_card_pattern(text: object) -> CardPattern:
    """Return the pattern that `text` describes.

    Raises
    ------
    UnitError
        The form cannot be understood.
    """
    written = str(text).strip()
    match = _PATTERN.fullmatch(written)
    if match is None:
        raise UnitError(
            f'"{written}" names no cards.', 'Write HOST:CARDS such as "node1:*", "node1:0-3" or "*:0".'
        )
    first = int(match["first"] or 0)
    last = None if match["first"] is None else int(match["last"] or first)
    if last is not None and last < first:
        raise UnitError(f'"{written}" counts backwards.', f'Write "{match["node"]}:{last}-{first}".')
    return CardPattern(match["node"], first, last, written)


@lru_cache(maxsize=4096)
def _names_meet(a: str, b: str) -> bool:
    """Whether one name matches both wildcard patterns."""
    if not a or not b:
        return set(a + b) <= {"*"}
    if a[0] == "*":
        return _names_meet(a[1:], b) or _names_meet(a, b[1:])
    if b[0] == "*":
        return _names_meet(b, a)
    return (a[0] == b[0] or "?" in (a[0], b[0])) and _names_meet(a[1:], b[1:])
