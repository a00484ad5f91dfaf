"""The policy of a pool that has no policy file: one person, or one team that shares."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpupool.policy.cards import CardInfo, HostInfo


def builtin_policy(gpus: Sequence[CardInfo], hosts: Sequence[HostInfo]) -> str:
    """Return the text of a policy that gives everyone all cards, CPUs and memory of the pool."""
    return ""
