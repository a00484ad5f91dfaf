"""What the doctor says of one thing.

Owns: `Finding`. Never: a check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """What one check found: `note` is worth knowing, `problem` keeps the pool from working."""

    subject: str
    verdict: Verdict
    sentence: str
