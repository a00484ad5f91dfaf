"""Decayed usage: how much of the pool a user of a group has had lately, in nano-GPU.

``u ← u·0.5^(dt/7d) + (1 − 0.5^(dt/7d))·held·charge``: a week after its end, half of what was held is
forgotten. Owns the formula and the accounts; never touches the database or a clock.

An account is brought up to date only when what it holds changes; in between, its value at any moment
follows from the formula, so nothing needs to be written as time goes by.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from jupyter_gpupool.ledger.records import LeaseRecord
from jupyter_gpupool.scheduler.model import Usage

HALF_LIFE_S = 7 * 86400
_FIXED_POINT_BITS = 64

Key: TypeAlias = tuple[str, str]  # (group, user)


@dataclass(frozen=True)
class Account:
    """Decayed usage `nano` (nano-GPU) as of `at` (seconds since the epoch)."""

    nano: int = 0
    at: int = 0


def decayed(nano: int, held_nano: int, dt: int) -> int:
    """Return usage `dt` seconds later, with `held_nano` nano-GPU (times charge) held all the while.

    Computed as ``held + (u − held)·2^(−dt/7d)`` with a 64-bit fixed-point power, rounded to the nearest.
    """
    halvings, rest = divmod(max(dt, 0), HALF_LIFE_S)
    kept = int(math.ldexp(math.exp2(-rest / HALF_LIFE_S), _FIXED_POINT_BITS))
    shift = _FIXED_POINT_BITS + halvings
    return held_nano + (((nano - held_nano) * kept + (1 << (shift - 1))) >> shift)


def held_nano(lease: LeaseRecord | None) -> int:
    """Return what a lease weighs while it is live: its GPUs times the charge of its priority, in nano-GPU."""
    return lease.placement.gpu_milli * lease.charge_milli * 1000 if lease is not None and lease.live else 0


class Accounts:
    """The stored accounts of all (group, user) pairs, and what each pair holds now."""

    def __init__(self, accounts: Mapping[Key, Account], leases: Iterable[LeaseRecord]) -> None:
        self._accounts = accounts
        self._held: Counter[Key] = Counter()
        for lease in leases:
            self.change(None, lease)

    def settled(self, key: Key, now: int) -> Account:
        """Return the account brought up to `now`; a clock that went back changes nothing."""
        account = self._accounts.get(key, Account(at=now))
        nano = decayed(account.nano, self._held[key], now - account.at)
        return Account(nano, max(now, account.at))

    def usage(self, now: int) -> Usage:
        """Return all usage as of `now`, by group and by (group, user)."""
        by_user = {key: self.settled(key, now).nano for key in self._accounts}
        by_group: Counter[str] = Counter()
        for (group, _), nano in by_user.items():
            by_group[group] += nano
        return Usage(by_group=dict(by_group), by_user=by_user)

    def change(self, before: LeaseRecord | None, after: LeaseRecord) -> None:
        """Follow a lease from one state to the next; its account must have been settled before."""
        self.hold((after.group, after.owner), held_nano(after) - held_nano(before))

    def hold(self, key: Key, nano: int) -> None:
        """Let a pair hold more, or less; its account must have been settled before."""
        self._held[key] += nano
