"""Servers of one host start a few at a time: all together, none of them would be up before its timeout.

Owns: whose turn it is, and what those who wait are told. Never: how a server starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from jupyter_gpupool.client.text import duration
from jupyter_gpupool.spawner.news import GRANTED, News, plain_event
from jupyter_gpupool.spawner.refusal import UNAVAILABLE, Refusal

TURN_S = 600
"""Seconds that a start may wait for its turn."""
_TURNS = "gpupool_turns"


class Turns:
    """A line of starts, of which the first ones are under way; first come, first served.

    Parameters
    ----------
    most : int, optional
        How many may start at once; any number by default.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._line: list[object] = []
        self._moved = asyncio.Event()

    @classmethod
    def of(cls, most: int, settings: MutableMapping[str, Any]) -> Turns:
        """Return the one line of a Hub, of which these are the settings."""
        turns: Turns = settings.setdefault(_TURNS, cls(most))
        return turns

    @contextmanager
    def line_up(self) -> Iterator[Place]:
        """Be in the line until the start is over, however it ends."""
        place = object()
        self._line.append(place)
        try:
            yield Place(self, place)
        finally:
            self._line.remove(place)
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()

    def before(self, place: object) -> int:
        """Return how many come before `place`; none once it is its turn."""
        before = self._line.index(place)
        return 0 if self._most is None or before < self._most else before

    async def moves(self) -> None:
        """Wait until somebody leaves the line."""
        await self._moved.wait()


class Place:
    """One start's place in the line."""

    def __init__(self, turns: Turns, place: object) -> None:
        self._turns = turns
        self._place = place

    async def until_mine(self) -> AsyncIterator[int]:
        """Yield how many servers start before this one, now and after each change, until it is its turn."""
        while before := self._turns.before(self._place):
            yield before
            await self._turns.moves()


@asynccontextmanager
async def my_turn(turns: Turns, news: News) -> AsyncIterator[None]:
    """Wait for the turn to start, telling how many come before, and keep it meanwhile.

    Raises
    ------
    Refusal
        It did not come within `TURN_S`.
    """
    with turns.line_up() as place:
        try:
            async with asyncio.timeout(TURN_S):
                async for before in place.until_mine():
                    start = "server starts" if before == 1 else "servers start"
                    words = f"Your place is ready; {before} {start} before yours."
                    news.say(plain_event(GRANTED, words))
        except TimeoutError:
            raise Refusal(
                f"Many servers start now, and it was not your server's turn within {duration(TURN_S)}. "
                "Try again in a few minutes; if it lasts, tell your administrator.",
                reason="no_turn",
                status_code=UNAVAILABLE,
            ) from None
        news.say(plain_event(GRANTED, "Your place is ready; the server is starting."))
        yield
