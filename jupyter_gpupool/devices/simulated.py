"""A pool whose cards exist only in the ledger, for demos, tests and machines without a GPU.

Owns: the text form ``4x8x32GiB`` (nodes x cards x memory) and the deterministic cards it means.
Never: a driver, or a claim that the cards are real; jobs on them really run, on the CPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .base import Card, DevicesError, Load, NodeInfo, Process

EXAMPLE = "4x8x32GiB"
CPUS_PER_CARD_MILLI = 8_000
MEMORY_PER_CARD_MIB = 60 * 1024
LEAST_CARD_MIB = 256
MOST_CARDS = 10_000

_FORM = re.compile(r"(\d{1,9})x(\d{1,9})x(\d{1,9})(GiB|MiB|Gi|Mi)")


@dataclass(frozen=True)
class SimulatedPool:
    """`node_count` equal nodes, named node1, node2, …"""

    node_count: int
    cards_per_node: int
    card_mib: int

    simulated = True

    @classmethod
    def parse(cls, text: str) -> SimulatedPool:
        """Read ``nodes x cards x memory``, as in ``4x8x32GiB``.

        Raises
        ------
        DevicesError
            The text has another form, or describes no pool or an absurd one.
        """
        found = _FORM.fullmatch(text.strip())
        if not found:
            raise DevicesError(
                f"{text!r} does not describe a simulated pool: "
                f"write nodes x cards x memory with a unit, as in {EXAMPLE}."
            )
        nodes, cards, size = (int(number) for number in found.groups()[:3])
        card_mib = size * 1024 if found[4].startswith("G") else size
        if nodes == 0 or cards == 0:
            raise DevicesError(
                f"{text!r} has no card: give at least one node with one card, as in 1x1x32GiB."
            )
        if nodes * cards > MOST_CARDS:
            raise DevicesError(
                f"{text!r} has {nodes * cards} cards; a simulated pool has at most {MOST_CARDS}."
            )
        if card_mib < LEAST_CARD_MIB:
            raise DevicesError(
                f"{text!r} has cards of {card_mib} MiB; the least slice is {LEAST_CARD_MIB} MiB, "
                "so give each card at least that."
            )
        return cls(nodes, cards, card_mib)

    @property
    def spec(self) -> str:
        """The text form that `parse` reads back into an equal pool."""
        return f"{self.node_count}x{self.cards_per_node}x{self._size()}"

    def nodes(self) -> list[NodeInfo]:
        """Return node1, node2, … with CPUs and memory in proportion to their cards."""
        cpus, memory = CPUS_PER_CARD_MILLI * self.cards_per_node, MEMORY_PER_CARD_MIB * self.cards_per_node
        return [NodeInfo(f"node{n}", cpus, memory) for n in range(1, self.node_count + 1)]

    def cards(self) -> list[Card]:
        """Return the cards; their UUIDs are the same in every run, the cards of one node are linked."""
        return [
            Card(
                uuid=f"SIM-{node.name}-{index}",
                node=node.name,
                index=index,
                model=f"Simulated {self._size()}",
                memory_mib=self.card_mib,
                link_group=node.name,
                simulated=True,
            )
            for node in self.nodes()
            for index in range(self.cards_per_node)
        ]

    def processes(self) -> list[Process]:
        """Return none: nothing can run on a card that does not exist."""
        return []

    def free_mib(self, uuid: str) -> int | None:
        """Return the whole card: nobody can use its memory."""
        if uuid not in self.healthy():
            raise KeyError(uuid)
        return self.card_mib

    def healthy(self) -> dict[str, str]:
        """Return every card as well."""
        return {card.uuid: "" for card in self.cards()}

    def loads(self) -> dict[str, Load]:
        """Return every card's load as unknown: nothing measures a card that does not exist."""
        return {card.uuid: Load() for card in self.cards()}

    def describe(self) -> str:
        """Return what is simulated, and that jobs are not."""
        return (
            f"Simulated pool {self.spec}: {_count(self.node_count, 'node')} with "
            f"{_count(self.cards_per_node, 'card')} of {self._size()} each. "
            "Jobs really run, on this machine's CPUs; only the cards are simulated."
        )

    def close(self) -> None:
        """Do nothing: there is no driver."""

    def _size(self) -> str:
        return f"{self.card_mib // 1024}GiB" if self.card_mib % 1024 == 0 else f"{self.card_mib}MiB"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
