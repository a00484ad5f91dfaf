"""Asking for a lease, and waiting for it.

Owns: one request, its wait, the way out to CPU only, and how many logins may wait so that the Hub still lets
others in. Never: a place in the queue; the service keeps those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.text import duration, plural
from jupyter_gpupool.spawner.answers import Spawn, Unusable
from jupyter_gpupool.spawner.choice import CPU_ONLY, Choice
from jupyter_gpupool.spawner.news import ASKING, WAITING, News, plain_event, waiting_event
from jupyter_gpupool.spawner.pool import Pool
from jupyter_gpupool.spawner.refusal import Refusal

LOOK_S = 25
"""Seconds that one look at a waiting lease may take; the service answers earlier if something changes."""
SOON_S = 1
"""The same while the place in the queue is not known yet."""
SILENCE_S = 300.0
"""Seconds without the service after which a login gives up; the service keeps the place for 600 s."""
AGAIN_S = 2.0

_WAITING = "gpupool_waiting"


class Queue:
    """One login's way through the pool's queue.

    Parameters
    ----------
    settings : mutable mapping
        The Hub's own; the logins that wait are counted there.
    """

    def __init__(self, pool: Pool, news: News, settings: MutableMapping[str, Any]) -> None:
        self._pool = pool
        self._news = news
        self._waiting: set[Queue] = settings.setdefault(_WAITING, set())
        self._limit: int = settings.get("concurrent_spawn_limit", 0)

    async def ask(self, user: str, server: str, groups: list[str], choice: Choice) -> Spawn:
        """Return the answer to a request for `choice`: held, or waiting if that was chosen.

        Raises
        ------
        PoolError
            Refused, or the service cannot be used.
        """
        body = {"user": user, "server": server, "groups": groups}
        try:
            return await self._pool.request_lease({**body, **_request(choice)})
        except PoolError as error:
            if error.code != "no_room" or choice.when_full != "cpu" or choice.slice == CPU_ONLY:
                raise
            self._news.say(plain_event(ASKING, "No GPU is free now: starting with CPU only, as you chose."))
            return await self._pool.request_lease({**body, **_request(choice.cpu_only), "wait": True})

    async def wait(self, spawn: Spawn, seconds: int) -> Spawn:
        """Return how the lease stands once it is held.

        Raises
        ------
        PoolError
            The service ended the request, says why, and has forgotten it.
        Refusal
            It lasted longer than `seconds`, too many wait already, or the service stays silent.
        """
        if _held(spawn):
            return spawn
        try:
            with self._a_place_to_wait():
                async with asyncio.timeout(seconds):
                    while not _held(spawn):
                        self._news.say(waiting_event(spawn.waiting))
                        spawn = await self._next(spawn)
        except TimeoutError:
            raise Refusal(
                f"Nothing became free within {duration(seconds)}, the longest that a login waits here. "
                "Choose a smaller slice or CPU only, or try again.",
                reason="queue_timeout",
            ) from None
        return spawn

    async def _next(self, spawn: Spawn) -> Spawn:
        """Look again; over a restart of the service."""
        wait = LOOK_S if spawn.waiting.get("position") else SOON_S
        loop = asyncio.get_running_loop()
        give_up = loop.time() + SILENCE_S
        while True:
            try:
                return await self._pool.look(spawn.lease, wait=wait)
            except Unusable as error:
                if loop.time() > give_up:
                    raise
                self._news.say(
                    plain_event(WAITING, str(error.message), "Your place in the queue is kept meanwhile.")
                )
                await asyncio.sleep(AGAIN_S)

    @contextmanager
    def _a_place_to_wait(self) -> Iterator[None]:
        """Be one of the logins that wait; some of the Hub's concurrent starts are left to the others."""
        most = most_waiting(self._limit)
        if most is not None and len(self._waiting) >= most:
            raise Refusal(
                f"{plural(len(self._waiting), 'login')} wait for a GPU already, and at most {most} may, so "
                "that others can still log in. Choose CPU only, or try again later.",
                reason="too_many_waiting",
            )
        self._waiting.add(self)
        try:
            yield
        finally:
            self._waiting.discard(self)


def most_waiting(concurrent_spawn_limit: int) -> int | None:
    """Return how many logins may wait: the Hub's limit less a fifth, at least one; None = any number."""
    if concurrent_spawn_limit <= 0:
        return None
    return concurrent_spawn_limit - max(1, concurrent_spawn_limit // 5)


def _request(choice: Choice) -> dict[str, Any]:
    return {
        "group": choice.group,
        "slice": choice.slice,
        "partition": choice.partition,
        "wait": choice.when_full == "wait",
    }


def _held(spawn: Spawn) -> bool:
    """Whether the lease is held.

    Raises
    ------
    Refusal
        It is over.
    """
    if spawn.state == "over":
        raise Refusal(f"{spawn.reason} Start the server again to ask anew.", reason="lease_ended")
    return spawn.state == "held"
