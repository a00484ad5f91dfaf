"""How a GPU is cut, and what that means for the work that gets a piece.

Owns: the variables by which a process finds its cards and is asked to keep to its slice, and the
honest word for what a mode guarantees. Never: enforcement; a framework's cap binds only the
allocator that reads it, so `timeslice` is soft and is labelled so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Mode = Literal["whole", "timeslice", "simulated"]

ISOLATION: Mapping[str, str] = {"whole": "soft", "timeslice": "soft", "simulated": "soft"}
"""What each mode guarantees about a neighbour's memory.

A variable that names a card is an agreement, not a wall, so not even a whole card is kept apart firmly.
"""

TORCH = "PYTORCH_ALLOC_CONF"


def mode_of(*, whole: bool, simulated: bool) -> Mode:
    """Return the mode for a grant of whole cards, or of a slice of one."""
    if simulated:
        return "simulated"
    return "whole" if whole else "timeslice"


def environment(
    mode: Mode,
    gpus: Sequence[tuple[str, int]],
    *,
    card_mib: int,
    lease_id: int,
    cpus_milli: int,
) -> dict[str, str]:
    """Return the variables for one grant.

    Parameters
    ----------
    gpus
        (UUID, MiB) of each card; empty for work on the CPU, which then sees no card.
    card_mib
        Memory of a whole card, of which a slice is a fraction.
    cpus_milli
        CPUs of the grant; libraries that count threads are told the whole CPUs in it, at least one.
    """
    uuids = ",".join(uuid for uuid, _ in gpus)
    variables = {
        "CUDA_VISIBLE_DEVICES": "" if mode == "simulated" else uuids,
        "OMP_NUM_THREADS": str(max(1, cpus_milli // 1000)),
        "GPUPOOL_GPUS": uuids,
        "GPUPOOL_GPU_MEMORY_MIB": ",".join(str(mib) for _, mib in gpus),
        "GPUPOOL_LEASE_ID": str(lease_id),
        "GPUPOOL_SHARING_MODE": mode,
    }
    if mode == "timeslice" and gpus:
        variables |= framework_caps(min(mib for _, mib in gpus), card_mib)
    return variables


def framework_caps(slice_mib: int, card_mib: int) -> dict[str, str]:
    """Return what asks each framework to stay inside `slice_mib` of a card; fractions are rounded down.

    JAX gets its older name only: setting the newer one too makes it fail. PyTorch gets its newer
    name only: the older one fails on keys that it does not know.
    """
    ten_thousandths = 10_000 * slice_mib // card_mib
    fraction = f"{ten_thousandths // 10_000}.{ten_thousandths % 10_000:04d}"
    return {
        TORCH: f"per_process_memory_fraction:{fraction}",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": fraction,
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "FLAGS_gpu_memory_limit_mb": str(slice_mib),
        "CUPY_GPU_MEMORY_LIMIT": str(slice_mib * 1024 * 1024),
    }


def merged(own: Mapping[str, str], granted: Mapping[str, str]) -> dict[str, str]:
    """Return a user's environment with a grant's variables laid over it.

    The user's other settings of PyTorch's allocator stay; JAX's newer name goes where a cap sets the older.
    """
    both = {**own, **granted}
    if TORCH in own and TORCH in granted:
        key = granted[TORCH].partition(":")[0]
        kept = [
            item for item in own[TORCH].split(",") if item.strip() and item.partition(":")[0].strip() != key
        ]
        both[TORCH] = ",".join([*kept, granted[TORCH]])
    if "XLA_PYTHON_CLIENT_MEM_FRACTION" in granted:
        both.pop("XLA_CLIENT_MEM_FRACTION", None)
    return both
