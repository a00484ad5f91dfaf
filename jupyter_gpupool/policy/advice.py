"""What an administrator should know about a policy that is valid.

Owns: the sentences on keys that are not active yet, and warnings such as "oversubscribed".
Never: errors (see `checks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_gpupool.policy.model import Policy


def inactive(policy: Policy) -> list[str]:
    """Return one sentence per key of the file that is accepted but not active in this version."""
    return []


def warnings(policy: Policy, totals: Mapping[str, int]) -> list[str]:
    """Return sentences on a policy that does not suit the pool.

    Parameters
    ----------
    totals : mapping
        What the pool has, with the keys of `Amounts.amounts`.
    """
    return []
