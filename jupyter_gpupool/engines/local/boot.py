"""Which boot of the machine this is.

Owns: its identity, since process ids mean something within one boot only. Never: a clock.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "GPUPOOL_BOOT_ID"


def boot_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return the kernel's boot id, or what ``GPUPOOL_BOOT_ID`` puts in its place."""
    return environ.get(VARIABLE) or Path("/proc/sys/kernel/random/boot_id").read_text().strip()
