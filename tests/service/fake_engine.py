"""An engine whose attempts begin, end, fail and are forgotten when a test says so; a clock that it sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpupool.engines.base import Ended, EngineError, Started, Survival, WorkSpec
from jupyter_gpupool.engines.local.files import DirectFiles


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class FakeEngine:
    """What it was asked is in `started`, `stopped`, `extended` and `forgotten`.

    What it says is `known` and `remaining`; `failing` are the errors of the next starts; while it is `deaf`,
    it answers nothing.
    """

    def __init__(self, jobs: Path) -> None:
        self.files = DirectFiles(jobs)
        self.survival = Survival(True, "")
        self.privileged = False
        self.known: dict[str, Started | Ended] = {}
        self.remaining: set[str] = set()
        self.failing: list[Exception] = []
        self.deaf = False
        self.started: list[str] = []
        self.stopped: list[tuple[str, str, int]] = []
        self.forgotten: list[str] = []
        self.extended: list[tuple[str, int]] = []
        self.on_event: Callable[[Ended], None] = lambda ended: None

    async def open(self, on_event: Callable[[Ended], None]) -> None:
        self.on_event = on_event

    async def close(self) -> None:
        pass

    async def start(self, spec: WorkSpec) -> Started:
        self.started.append(spec.key)
        if self.failing:
            raise self.failing.pop(0)
        return self.begin(spec.key)

    async def stop(self, key: str, *, cause: str, grace_s: int) -> None:
        self._answer()
        if key in self.known:
            self.stopped.append((key, cause, grace_s))

    async def extend(self, key: str, limit_s: int) -> bool:
        self._answer()
        self.extended.append((key, limit_s))
        return isinstance(self.known.get(key), Started)

    async def list(self) -> list[Started | Ended]:
        self._answer()
        return list(self.known.values())

    async def forget(self, key: str) -> None:
        self.forgotten.append(key)
        self.known.pop(key, None)

    async def left(self, key: str) -> list[int]:
        self._answer()
        return [1] if key in self.remaining else []

    def begin(self, key: str) -> Started:
        """An attempt runs, whoever started it."""
        self.known[key] = found = Started(key, 1, 0.0, None, True)
        return found

    def end(self, key: str, *, tell: bool = True, **changes: Any) -> None:
        """An attempt ends; the service hears of it at once unless told otherwise."""
        ended = Ended(key, 0, None, "exit", "", None, False, 1_800_000_000.0, True)
        self.known[key] = ended = replace(ended, **changes)
        if tell:
            self.on_event(ended)

    def _answer(self) -> None:
        if self.deaf:
            raise EngineError("The launcher does not answer.")
