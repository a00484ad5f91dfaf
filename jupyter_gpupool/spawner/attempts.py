"""Servers as attempts that the launcher runs.

Owns: the Hub's one connection to a launcher, opened when first needed; starting, finding and ending an
attempt over it. Never: which server an attempt is, or starting a launcher.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_gpupool.engines.base import Ended, EngineError, JobFiles, NoSuchFileError, Started, WorkSpec
from jupyter_gpupool.engines.local.engine import LocalEngine

FIND_S = 5.0
_KILL_S = 20.0
_LOOK_S = 1.0
_TAIL = 4096
_LINKS = "gpupool_launchers"


class Attempts:
    """The attempts of one launcher."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._engine: LocalEngine | None = None
        self._opening = asyncio.Lock()
        self._ended = asyncio.Event()

    @classmethod
    def of(cls, home: str, settings: MutableMapping[str, Any]) -> Attempts:
        """Return the Hub's connection to the launcher of `home`; `settings` are the Hub's."""
        links: dict[str, Attempts] = settings.setdefault(_LINKS, {})
        return links.setdefault(home, cls(Path(home)))

    async def start(self, spec: WorkSpec) -> Started:
        """Run an attempt; the same key again finds the one that runs.

        Raises
        ------
        EngineError
            The launcher refuses it or is not there; nothing was started.
        """
        return await (await self._open()).start(spec)

    async def find(self, key: str) -> Started | Ended | None:
        """Return how an attempt stands; None = the launcher has never run it, or has forgotten its end.

        Raises
        ------
        EngineError
            The launcher does not answer: nothing is known.
        """
        try:
            async with asyncio.timeout(FIND_S):
                reports = await (await self._open()).list()
        except TimeoutError:
            raise EngineError(f"The launcher did not answer within {FIND_S:.0f} s.") from None
        return next((report for report in reports if report.key == key), None)

    async def ended(self, key: str) -> Ended:
        """Return the end of an attempt that was started, when it comes."""
        while True:
            with suppress(EngineError):
                report = await self.find(key)
                if isinstance(report, Ended):
                    return report
            await self._news()

    async def last_words(self, job: int, attempt: int) -> str:
        """Return the last line that an attempt wrote; nothing where its log cannot be read."""
        try:
            engine = await self._open()
            return await asyncio.to_thread(_last_line, engine.files, job, attempt)
        except (EngineError, NoSuchFileError, OSError):
            return ""

    async def end(self, key: str, grace_s: int) -> None:
        """End an attempt: ask its processes, kill them after `grace_s` seconds, return when all are gone.

        Raises
        ------
        EngineError
            The launcher does not answer, or processes are left.
        """
        try:
            async with asyncio.timeout(grace_s + _KILL_S):
                await (await self._open()).stop(key, cause="cancel", grace_s=grace_s)
                while not _gone(await self.find(key)):
                    await self._news()
        except TimeoutError:
            raise EngineError(
                f"Processes of {key} are left {grace_s + _KILL_S:.0f} s after its end."
            ) from None

    async def close(self) -> None:
        """Hang up; what runs goes on."""
        if self._engine:
            await self._engine.close()
            self._engine = None

    async def _open(self) -> LocalEngine:
        async with self._opening:
            if self._engine is None:
                engine = LocalEngine(self._home, may_start=False)
                await engine.open(self._hear)
                self._engine = engine
            return self._engine

    def _hear(self, _end: Ended) -> None:
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()

    async def _news(self) -> None:
        """Wait until some attempt has ended; not for ever, since the event may have come before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._ended.wait()


def _last_line(files: JobFiles, job: int, attempt: int) -> str:
    with open(files.open(job, str(attempt), "log"), "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
        lines = log.read(_TAIL).decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _gone(report: Started | Ended | None) -> bool:
    return report is None or (isinstance(report, Ended) and report.tree_gone)
