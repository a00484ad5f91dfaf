"""Which cards a pool is made of: the machine's own, unless a simulated pool was asked for.

Owns: that choice. Never: falling back from real cards to simulated ones; people must ask for that.
"""

from __future__ import annotations

from .base import Pool
from .nvml import NvmlPool
from .simulated import SimulatedPool


def open_pool(simulate: str | None) -> Pool:
    """Return the simulated pool that `simulate` describes, or the cards of this machine.

    Raises
    ------
    DevicesError
        `simulate` is malformed, or this machine has no driver or no usable card.
    """
    return SimulatedPool.parse(simulate) if simulate else NvmlPool()
