"""What goes with a part of a card: the slice that holds it, its CPUs and its host memory.

Owns: reading the policy's `slices` and `defaults` for one size. Pure. Never: which sizes a pool has room for.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpupool.policy.model import Defaults, Slice
from jupyter_gpupool.policy.units import slice_mib

Part = tuple[int, int]  # of a card: numerator, denominator; above one for several cards


def mib_of(cut: Slice, card_mib: int) -> int:
    """Return the MiB of GPU memory that a slice is on cards of `card_mib`."""
    return slice_mib(card_mib, *cut.share) if cut.share else card_mib * (cut.gpus or 0)


def smallest_that_holds(
    slices: Iterable[Slice], gpus: int | None, mib: int | None, card_mib: int
) -> Slice | None:
    """Return the slice of just `gpus` cards, or the smallest with at least `mib`; None if there is none."""
    if gpus is not None:
        fitting = [cut for cut in slices if cut.gpus == gpus]
    else:
        fitting = [cut for cut in slices if cut.gpus != 0 and mib_of(cut, card_mib) >= (mib or 0)]
    return min(fitting, key=lambda cut: mib_of(cut, card_mib), default=None)


def part_of_a_card(gpus: int, mib: int, cut: Slice | None, card_mib: int) -> Part:
    """Return which part of a card of `card_mib` (0: unknown) a size is."""
    if not mib:
        return gpus, 1
    if cut and cut.share:
        return cut.share
    return (mib, card_mib) if card_mib else (1, 1)


def cpus_beside(part: Part, cut: Slice | None, defaults: Defaults) -> int:
    """Return the milli-CPUs that go with a part of a card, at least one whole CPU."""
    return max(1000, (cut and cut.cpus) or defaults.cpus_per_gpu * part[0] // part[1])


def memory_beside(part: Part, cut: Slice | None, cpus_milli: int, defaults: Defaults) -> int:
    """Return the MiB of host memory that go with a part of a card; without a card, with its CPUs."""
    with_cards = defaults.memory_per_gpu * part[0] // part[1]
    with_cpus = defaults.memory_per_gpu * cpus_milli // defaults.cpus_per_gpu
    return (cut and cut.memory) or with_cards or with_cpus
