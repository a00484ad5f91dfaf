"""Where a ledger may lie: on a local, writable file system, with one writer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mount:
    """One line of the mount table."""

    point: str
    fstype: str
