"""Tab completion of ``%gpupool``: verbs, options, files.

Owns: what may follow what is typed. Never: a request; completion must answer at once.
"""

from __future__ import annotations

import glob
from typing import Any

from jupyter_gpupool.client.options import OPTIONS
from jupyter_gpupool.client.verbs import VERBS

LINE = r"%{1,2}gpupool\b.*"
VERB_NAMES = sorted([*VERBS, "submit", "logs", "wait", "fetch", "acquire", "give-back"])


def complete(_: Any, event: Any) -> list[str]:
    """Return what may stand at the end of the line."""
    words = event.line.split()
    symbol = event.symbol
    before = words[1:-1] if symbol and words[-1] == symbol else words[1:]
    if not before:
        return VERB_NAMES
    if symbol.startswith("-"):
        return [option.flag for option in OPTIONS]
    if before[0] == "submit":
        return [name for pattern in ("*.py", "*.ipynb") for name in sorted(glob.glob(f"{symbol}{pattern}"))]
    return ["last"]
