"""A policy for a workload that comes without one: every group is owed what its work took.

Owns: the division of the cards among the groups, and the policy's text. Never: a simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from jupyter_gpupool.devices.base import Hardware
from jupyter_gpupool.policy.units import format_milli
from jupyter_gpupool.simulator.workload import Task, WorkloadError

_TEXT = """\
# Made for a workload: one partition, and for each group a quota in proportion to its work.
partitions:
  all: {{gpus: ["*:*"], for: [session, job]}}
defaults: {{cpus_per_gpu: {cpus}, memory_per_gpu: {memory}MiB}}
groups:
{groups}
"""


def policy_for(tasks: Iterable[Task], pool: Hardware) -> str:
    """Return the text of a policy that gives each group cards in proportion to its GPU time.

    Each gets at least the cards of one node, and together they get all.

    Raises
    ------
    WorkloadError
        There are fewer cards than that.
    """
    cards, nodes = pool.cards(), pool.nodes()
    work: Counter[str] = Counter()
    for task in tasks:
        part = task.gpus or task.mib / cards[0].memory_mib
        work[task.group] += 1 + int(task.duration * part * 1000)
    least = 0 if len(work) < 2 else max(Counter(card.node for card in cards).values())
    if least * len(work) > len(cards):
        raise WorkloadError(
            f"{len(work)} groups with at least {least} cards each need {least * len(work)} cards, "
            f"and the pool has {len(cards)}. "
            "Write a policy and name it with --policy, or give the pool more nodes."
        )
    groups = divided(work, len(cards), least)
    return _TEXT.format(
        cpus=format_milli(sum(node.cpus_milli for node in nodes) // len(cards)),
        memory=sum(node.memory_mib for node in nodes) // len(cards),
        groups="\n".join(f'  "{name}": {{quota: {{gpus: {owed}}}}}' for name, owed in groups.items()),
    )


def divided(work: Mapping[str, int], cards: int, least: int) -> dict[str, int]:
    """Divide whole cards in proportion to `work`, at least `least` each; largest remainders get the rest."""
    small: set[str] = set()
    while True:
        rest = {name: amount for name, amount in work.items() if name not in small}
        free, total = cards - least * len(small), sum(rest.values()) or 1
        more = {name for name, amount in rest.items() if amount * free < least * total}
        if not more:
            break
        small |= more
    owed = {name: least if name in small else work[name] * free // total for name in work}
    by_remainder = sorted(rest, key=lambda name: (-(work[name] * free % total), name))
    for name in by_remainder[: cards - sum(owed.values())]:
        owed[name] += 1
    return owed
