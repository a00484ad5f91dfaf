"""Looking after something again and again.

Owns: the task that does it, and that a look which fails is logged and followed by the next. Never: what is
looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.ledger import LedgerUnavailable

log = logging.getLogger("gpupool")


class Rounds:
    """Looks at one thing every so many seconds.

    Parameters
    ----------
    what
        What is looked at, for the log: ``the servers``.
    look
        One look.
    every_s
        The pause between two looks.
    """

    def __init__(self, what: str, look: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._what = what
        self._look = look
        self._every_s = every_s
        self._task: asyncio.Task[NoReturn] | None = None

    def open(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._look_forever())

    async def close(self) -> None:
        """Look no more."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_forever(self) -> NoReturn:
        while True:
            try:
                await self._look()
            except (EngineError, LedgerUnavailable) as error:
                log.warning("A look at %s comes again soon: %s", self._what, error)
            except Exception:
                log.exception("A look at %s failed; the next one comes soon", self._what)
            await asyncio.sleep(self._every_s)
