"""What a login that waits is told.

Owns: `News`, which any number of pages may follow, and the words for a place in the queue. Never: the waiting
itself, or a request to the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from html import escape
from typing import Any

from jupyter_gpupool.client.phrases import starts_text
from jupyter_gpupool.client.text import Clock, sentence
from jupyter_gpupool.spawner.refusal import readable

Event = dict[str, Any]
ASKING, WAITING, GRANTED = 5, 10, 30
"""How far the Hub's bar is; a queue has no fraction, so waiting keeps its place."""


class News:
    """The latest word on one start; who follows later hears the latest first."""

    def __init__(self) -> None:
        self._latest: Event | None = None
        self._over = False
        self._changed = asyncio.Event()

    def begin(self) -> None:
        """Forget an earlier start."""
        self._latest, self._over = None, False

    def say(self, event: Event) -> None:
        """Tell everybody, unless they know."""
        if event != self._latest:
            self._latest = event
            self._wake()

    def end(self) -> None:
        """There will be no more; who follows hears the latest and is let go."""
        self._over = True
        self._wake()

    async def follow(self) -> AsyncIterator[Event]:
        """Yield the latest word and each newer one, until the end."""
        shown: Event | None = None
        while True:
            latest = self._latest
            if latest is not None and latest is not shown:
                shown = latest
                yield dict(latest)
            elif self._over:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def plain_event(progress: int, *sentences: str) -> Event:
    """Return an event for the Hub's page; the first sentence stands out, and nothing in it is markup."""
    said = [readable(text) for text in sentences if text]
    first, *rest = said
    lines = [f"<strong>{escape(first)}</strong>", *map(escape, rest)]
    return {"progress": progress, "message": " ".join(said), "html_message": "<br>".join(lines)}


def waiting_event(waiting: Mapping[str, Any], clock: Clock | None = None) -> Event:
    """Say the place in the queue, what it waits for, and when it may start."""
    position = waiting.get("position")
    place = f"You are number {position} in the queue." if position else "You are in the queue for a GPU."
    reason = sentence(str(waiting.get("message") or "Nothing is free yet"))
    if reason.startswith("It is number "):
        there, _, reason = reason.removeprefix("It is ").partition(". ")
        place = f"You are {there}."
    starts = starts_text(waiting, clock)
    return plain_event(
        WAITING,
        place,
        reason,
        f"Expected start: {starts}." if starts else "",
    )
