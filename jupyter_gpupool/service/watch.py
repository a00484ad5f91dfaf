"""Telling administrators what troubles the pool.

Owns: which troubles there are: a lost card, a disk that fills up, a service that cannot do its work, or had
ended; that each is told when it comes, once a day while it lasts, and when it is over. What is left of work
that has ended (see `remains`) is told once. Never: mending one.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from jupyter_gpupool.client.text import memory
from jupyter_gpupool.engines.base import Engine, EngineError
from jupyter_gpupool.ledger.outbox import Message
from jupyter_gpupool.service.aside import aside
from jupyter_gpupool.service.controller import Controller
from jupyter_gpupool.service.remains import Remains
from jupyter_gpupool.service.visibility import public

LOOK_S = 30.0
MIB = 1024 * 1024
DAY_S = 86400


class Watch:
    """Looks at one pool now and then.

    Parameters
    ----------
    home
        The folder whose disk must not fill up.
    tell
        Sends a message.
    free_mib
        How much is free on the disk of a folder, in MiB.
    """

    def __init__(
        self,
        controller: Controller,
        engine: Engine,
        home: Path,
        tell: Callable[[Message], None],
        remains: Remains,
        free_mib: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free // MIB,
    ) -> None:
        self._controller = controller
        self._engine = engine
        self._home = home
        self._tell = tell
        self._remains = remains
        self._free_mib = free_mib
        self._there: dict[str, str] = {}
        self._over: Counter[str] = Counter()

    def is_back(self) -> None:
        """Tell that the service before this one has not ended by itself."""
        now = self._controller.now
        text = "The pool's service had ended unexpectedly, and is back; its service.log may say why."
        self._tell(Message(f"crashed {now}", None, "The pool's service is back after it broke down", text))

    async def look(self) -> None:
        """Tell what is new, and what is over."""
        found = await self._troubles()
        now = self._controller.now
        for name, sentence in found.items():
            key = f"trouble {name} {now // DAY_S} {self._over[name]}"
            self._tell(Message(key, None, sentence.rstrip("."), sentence))
        for name in self._there.keys() - found.keys():
            self._over[name] += 1
            text = f"It was: {self._there[name]}"
            self._tell(Message(f"over {name} {now}", None, f"Over: {self._there[name].rstrip('.')}", text))
        self._there = found

    async def _troubles(self) -> dict[str, str]:
        controller = self._controller
        cards = {card.uuid: card for card in controller.pool.cards()}
        found = {
            f"card {uuid}": f"{cards[uuid].node}: {because}"
            for uuid, because in controller.health.items()
            if because and uuid in cards
        }
        least = controller.policy.storage.min_free
        free = await aside(self._free_mib, self._home)
        if free < least:
            must = f"of the {memory(least)} that must stay free"
            found["disk"] = f"The pool's disk has {memory(free)} left {must}: jobs may soon fail to start."
        if controller.trouble:
            found["ledger"] = controller.trouble
        if error := public(controller.policies.error):
            found["policy"] = f"The policy file has an error, and the last good one holds: {error}"
        try:
            async for message in self._remains.messages(await self._engine.list()):
                self._tell(message)
        except EngineError as error:
            found["engine"] = str(error)
        return found
