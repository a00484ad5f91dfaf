"""What an installed pool was asked for, as a workload; and its cards, with more of them.

Owns: the translation of past work into tasks. Never: reading the ledger (`recall`), or the pool's service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_gpupool.devices.base import Card, Hardware, NodeInfo
from jupyter_gpupool.ledger.recall import Asked, asked_between
from jupyter_gpupool.scheduler.model import Seconds
from jupyter_gpupool.simulator.workload import Task, Workload, ordered

INSTALLED = "installed"


def installed(ledger: Path, since: Seconds, until: Seconds) -> Workload:
    """Return what was submitted in [since, until), has run and is over; it begins at `since`.

    Raises
    ------
    LedgerUnavailable
        There is no ledger that can be read.
    """
    tasks = ordered(_task(asked, since) for asked in asked_between(ledger, since, until))
    return Workload(INSTALLED, tasks, since)


@dataclass(frozen=True)
class Listed:
    """Hardware as it is listed."""

    node_list: tuple[NodeInfo, ...]
    card_list: tuple[Card, ...]

    def nodes(self) -> list[NodeInfo]:
        """Return the hosts."""
        return list(self.node_list)

    def cards(self) -> list[Card]:
        """Return the cards."""
        return list(self.card_list)


def with_more(pool: Hardware, more: Mapping[str, int]) -> Listed:
    """Return the pool with so many more cards in some nodes, like those there; other names are new nodes.

    A node's CPUs and memory grow with its cards.
    """
    cards, nodes = pool.cards(), {node.name: node for node in pool.nodes()}
    first = cards[0]
    for name, count in more.items():
        there = [card for card in cards if card.node == name]
        like = there[0] if there else first
        home, of = nodes[like.node], sum(card.node == like.node for card in cards)
        many = len(there) + count
        nodes[name] = NodeInfo(name, home.cpus_milli * many // of, home.memory_mib * many // of)
        known = {card.index for card in there}
        free = [
            index for index in range(len(known) + max(known, default=0) + count + 1) if index not in known
        ]
        cards += [replace(like, uuid=f"NEW-{name}-{index}", node=name, index=index) for index in free[:count]]
    return Listed(tuple(nodes.values()), tuple(cards))


def _task(asked: Asked, since: Seconds) -> Task:
    return Task(
        submit=asked.submitted - since,
        duration=asked.took,
        limit=max(asked.limit, asked.took) if asked.kind == "session" else asked.limit,
        gpus=asked.gpus,
        mib=asked.gpu_mib,
        group=asked.group,
        user=asked.user,
        priority=asked.priority,
        kind=asked.kind,
        resumable=asked.resumable,
        window=asked.window,
    )
