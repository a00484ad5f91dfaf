"""What the pool may know about its hardware.

Owns: the plain values that describe hosts, cards and the processes on them, and `Pool`,
the one interface to real and simulated cards. Never: who holds a card, or who should.

Units are integers: MiB and milli-CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

ProcessKind = Literal["compute", "graphics", "mps"]


class DevicesError(Exception):
    """The cards cannot be used; the text is one sentence for the administrator: what, and what to do."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU.

    `memory_mib` is what work can have: what the driver reserves for itself is already taken off.
    Cards with the same non-empty `link_group` reach each other over a fast link.
    """

    uuid: str
    node: str
    index: int
    model: str
    memory_mib: int
    link_group: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One host, with the CPUs and memory that go with its cards."""

    name: str
    cpus_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process on a card; `mib` is None when the driver does not tell (unknown, not zero)."""

    pid: int
    uuid: str
    mib: int | None
    kind: ProcessKind


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a card has been lately, in thousandths of its time: as a whole, and with each process.

    None = the driver does not tell; a process that is not listed has not used the card.
    """

    busy_milli: int | None = None
    by_process: Mapping[int, int] | None = None


class Hardware(Protocol):
    """What a pool is made of."""

    def nodes(self) -> list[NodeInfo]:
        """Return the hosts, in order of name as people count (node2 before node10)."""

    def cards(self) -> list[Card]:
        """Return the usable cards, by node and index. The list is fixed while the pool is open."""


class Pool(Hardware, Protocol):
    """The cards of one pool, real or simulated. Calls are short and may be made from any thread."""

    @property
    def simulated(self) -> bool:
        """Whether the cards exist only in the ledger."""

    def processes(self) -> list[Process]:
        """Return the processes on the cards now, each pid once per card."""

    def free_mib(self, uuid: str) -> int | None:
        """Return the memory of a card that nobody uses now; None = unknown.

        Raises
        ------
        KeyError
            The pool has no such card.
        """

    def healthy(self) -> dict[str, str]:
        """Return for every card "" when it can take work now, else one sentence that says why it cannot."""

    def loads(self) -> dict[str, Load]:
        """Return how busy each card is, and has been since this was asked last."""

    def describe(self) -> str:
        """Return one line for people: how many cards, of what kind, and what was left out."""

    def close(self) -> None:
        """Let go of the driver."""
