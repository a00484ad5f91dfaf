"""The policy of a pool that has no policy file: one person, or one team that shares.

Owns: its text. Never: a file; the service decides whether one is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpupool.policy.cards import CardInfo, HostInfo
from jupyter_gpupool.policy.units import MIN_SLICE_MIB, format_milli, format_size, slice_mib

_PARTS = (8, 4, 2)
_TEXT = """\
# One person, or one team that shares: everyone may use all of the pool.
timezone: UTC
partitions:
  all: {{gpus: ["*:*"], for: [session, job], slices: [{slices}]}}
defaults: {{cpus_per_gpu: {cpus_per_gpu}, memory_per_gpu: {memory_per_gpu}}}
groups:
  everyone:
    quota: {{gpus: {gpus}, cpus: {cpus}, memory: {memory}}}
default_group: everyone
"""


def builtin_policy(gpus: Sequence[CardInfo], hosts: Sequence[HostInfo]) -> str:
    """Return the text of a policy that gives everyone all cards, CPUs and memory of the pool."""
    cards = max(1, len(gpus))
    cpus = sum(host.cpus_milli for host in hosts)
    memory = sum(host.memory_mib for host in hosts)
    return _TEXT.format(
        slices=", ".join([*_shares(gpus), *(["{gpus: 1}"] if gpus else []), "{gpus: 0}"]),
        cpus_per_gpu=format_milli(max(1000, cpus // cards // 1000 * 1000)),
        memory_per_gpu=format_size(max(1, memory // cards)),
        gpus=len(gpus),
        cpus=format_milli(cpus),
        memory=format_size(max(1, memory)),
    )


def _shares(gpus: Sequence[CardInfo]) -> list[str]:
    """Return the slices that every card can give."""
    smallest = min((card.memory_mib for card in gpus), default=0)
    return [f"{{share: 1/{n}}}" for n in _PARTS if slice_mib(smallest, 1, n) >= MIN_SLICE_MIB]
