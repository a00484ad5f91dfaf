"""Doing what may have to wait for a disk or the engine.

Owns: one way to wait beside the loop, so that nobody else's request waits too. Never: what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


async def aside(work: Callable[..., R], *given: object) -> R:
    """Return what `work(*given)` does, in a thread of its own."""
    return await asyncio.get_running_loop().run_in_executor(None, work, *given)
