"""A service that can be killed at any call of its engine and any commit, and an engine that knows the truth.

All of it runs in one thread on a clock that only moves when everybody waits: nothing sleeps.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jupyter_gpupool.engines.base import Ended, EngineError, Started, WorkSpec
from jupyter_gpupool.ledger.database import Database
from tests.service.fake_engine import FakeEngine


class Crash(BaseException):
    """The service is killed here; nothing that it does afterwards has any effect."""


class Fuse:
    """Kills the service at its n-th effect on the world, before or after it."""

    def __init__(self) -> None:
        self.dead = False
        self._left: int | None = None
        self._moment = ""

    def light(self, left: int, moment: str) -> None:
        self._left, self._moment = left, moment

    def renew(self) -> None:
        self.dead, self._left = False, None

    def burn(self, moment: str) -> None:
        if self.dead:
            raise Crash
        if self._left is None:
            return
        if moment == "before":
            self._left -= 1
        if self._left <= 0 and moment == self._moment:
            self.dead = True
            raise Crash


@contextmanager
def commits_burn(fuse: Fuse) -> Iterator[None]:
    """Let every transaction of any ledger burn a fuse."""
    whole = Database._transaction

    @contextmanager
    def transaction(self: Database) -> Iterator[Any]:
        fuse.burn("before")
        with whole(self) as connection:
            yield connection
        fuse.burn("after")

    Database._transaction = transaction  # type: ignore[method-assign]
    try:
        yield
    finally:
        Database._transaction = whole  # type: ignore[method-assign]


class Inline(ThreadPoolExecutor):
    """Does in place what others would do in a thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class _Selector(selectors.DefaultSelector):
    """Passes time instead of waiting."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.passed += max(0.0, timeout or 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes when there is nothing to do, at once."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.set_default_executor(Inline(1))

    def time(self) -> float:
        return self._virtual.passed


@dataclass
class Attempt:
    """One attempt as it is, whoever knows of it; `asked` is why it was asked to end."""

    key: str
    begun: int = 0
    alive: bool = False
    ended: Ended | None = None
    asked: str | None = None

    @property
    def job(self) -> int:
        return int(self.key.partition("/")[0])


class FaultyEngine(FakeEngine):
    """Remembers in `attempts` all that ever ran, and in `wrong` what should never have begun."""

    def __init__(self, jobs: Path, fuse: Fuse) -> None:
        super().__init__(jobs)
        self.fuse = fuse
        self.attempts: dict[str, Attempt] = {}
        self.wrong: list[str] = []

    @property
    def live(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.alive]

    async def start(self, spec: WorkSpec) -> Started:
        with self._called():
            self._answer()
            if self.failing:
                raise self.failing.pop(0)
            known = self.known.get(spec.key)
            if isinstance(known, Started):
                return known
            if spec.key in self.attempts:
                raise EngineError(f"The attempt {spec.key} has run already; it does not run twice.")
            attempt = self.attempts[spec.key] = Attempt(spec.key, alive=True)
            attempt.begun += 1
            beside = [one.key for one in self.live if one.job == attempt.job]
            beside.remove(attempt.key)
            if beside:
                self.wrong.append(f"{attempt.key} begins beside {beside}")
            return self.begin(spec.key)

    async def stop(self, key: str, *, cause: str, grace_s: int) -> None:
        with self._called():
            await super().stop(key, cause=cause, grace_s=grace_s)
            if isinstance(self.known.get(key), Started):
                self.attempts[key].asked = self.attempts[key].asked or cause

    async def extend(self, key: str, limit_s: int) -> bool:
        with self._called():
            return await super().extend(key, limit_s)

    async def list(self) -> Any:
        with self._called():
            return await super().list()

    async def forget(self, key: str) -> None:
        with self._called():
            self._answer()
            await super().forget(key)

    async def left(self, key: str) -> list[int]:
        with self._called():
            self._answer()
            return [1] if key in self.attempts and self.attempts[key].alive else []

    def over(self, attempt: Attempt, how: Ended, *, told: bool) -> None:
        """An attempt ends; while processes of it may be left, it is told again when the last one is gone."""
        attempt.ended = attempt.ended or how
        attempt.alive = not how.tree_gone
        if attempt.key in self.known:
            self.known[attempt.key] = how
            if told and not self.fuse.dead:
                self.on_event(how)

    def gone(self, attempt: Attempt, *, told: bool) -> None:
        """The last process of an attempt is gone."""
        if attempt.ended:
            self.over(attempt, replace(attempt.ended, tree_gone=True), told=told)

    @contextmanager
    def _called(self) -> Iterator[None]:
        self.fuse.burn("before")
        yield
        self.fuse.burn("after")
