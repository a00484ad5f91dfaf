"""Tab completion of ``%gpupool``: verbs, options, files.

Owns: the list of verbs, and what may follow what is typed. Never: a request; completion must answer at once.
"""

from __future__ import annotations

import glob
from typing import Any

from jupyter_gpupool.client.options import OPTIONS
from jupyter_gpupool.client.verbs import VERBS

LINE = r"%{1,2}gpupool\b.*"
WHAT = {
    "submit": "submit a script, a notebook or a command; the job outlives this kernel",
    **{name: verb.what for name, verb in VERBS.items()},
    "logs": "what a job has printed; -f follows it until Interrupt",
    "wait": "wait until jobs have ended, or until Interrupt",
    "fetch": "bring a job's files, variables or result here",
    "acquire": "take GPUs, or a part of one, for this kernel",
    "give-back": "give back what this kernel acquired",
}
"""What each verb does, in the order in which help lists them."""


def complete(_: Any, event: Any) -> list[str]:
    """Return what may stand at the end of the line."""
    words = event.line.split()
    symbol = event.symbol
    before = words[1:-1] if symbol and words[-1] == symbol else words[1:]
    if not before:
        return sorted(WHAT)
    if symbol.startswith("-"):
        return [option.flag for option in OPTIONS]
    if before[0] == "submit":
        return [name for pattern in ("*.py", "*.ipynb") for name in sorted(glob.glob(f"{symbol}{pattern}"))]
    return ["last"]
