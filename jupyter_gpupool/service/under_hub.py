"""A Hub's service, whatever is wrong: it binds, says why it cannot open, and tries again.

Owns: the order in which a Hub's service comes up and goes. It stays where the Hub or systemd put it, and
ends when told to, with its jobs kept. Never: dying of something that somebody could put right.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from tornado.httpserver import HTTPServer

from jupyter_gpupool.client.enable import make_portable
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.service.config import HubConfig, ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from jupyter_gpupool.service.degraded import Front
from jupyter_gpupool.service.hub import Hub
from jupyter_gpupool.service.safety import unsafe_account
from jupyter_gpupool.service.serving import MAX_BODY, announce, attend, obey_signals, why_not
from jupyter_gpupool.service.takeover import succeed

log = logging.getLogger("gpupool")

RETRY_S = 2.0
"""How long after a failure the service tries to open again."""


class HubService:
    """One Hub's service, in one process.

    Parameters
    ----------
    parts
        Other parts than the usual ones; see `open_service`.
    """

    def __init__(self, config: ServiceConfig, hub: HubConfig, parts: dict[str, Any]):
        self._config = config
        self._hub_config = hub
        self._parts = parts
        self._hub = Hub(hub)
        self._front = Front(hub.socket, MAX_BODY)
        self._service: Service | None = None
        self._ending = asyncio.Event()
        self._parent = os.getppid()
        self._why = ""

    async def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Serve until asked to stop; `on_ready` is called when the service is open."""
        async with AsyncExitStack() as stack:
            obey_signals(stack, self._stop)
            stack.push_async_callback(self._hub.close)
            stack.push_async_callback(self._front.close)
            while not self._ending.is_set():
                try:
                    async with AsyncExitStack() as opening:
                        self._service = await self._open(opening)
                        server = announce(opening, self._service)
                        opened = opening.pop_all()
                except Exception as error:
                    self._explain(error)
                    await self._pause()
                else:
                    async with opened:
                        await self._serve(opened, self._service, server, on_ready)
                    return

    async def _open(self, stack: AsyncExitStack) -> Service:
        config, hub = self._config, self._hub_config
        config.home.make()
        if hub.socket.is_relative_to(config.home.path):
            config.home.path.chmod(0o711)
        self._front.bind()
        if because := unsafe_account(config, os.geteuid()):
            raise Refused("unsafe", because)
        await succeed(config, hub)
        if not self._front.bind():
            raise Refused("conflict", f"Another process answers at {hub.socket} already.")
        if config.launcher is None:
            make_portable(config.home)
        return await open_service(stack, config, known_servers=self._hub.servers, **self._parts)

    async def _serve(
        self,
        stack: AsyncExitStack,
        service: Service,
        server: HTTPServer,
        on_ready: Callable[[], None] | None,
    ) -> None:
        if self._ending.is_set():
            service.stop()
        self._front.behind = self._hub.application(service)
        await attend(stack, service, server, on_ready)

    def _stop(self) -> None:
        self._ending.set()
        if self._service:
            self._service.stop()

    def _explain(self, error: Exception) -> None:
        """Let everybody know why the service is not open; the log hears it once."""
        known = why_not(error, self._config.home)
        why = known or "The pool's service failed to open; the cause is in its log."
        self._front.close_behind(why)
        if why != self._why:
            self._why = why
            log.error("The service cannot open: %s", why, exc_info=None if known else error)

    async def _pause(self) -> None:
        """Wait a moment; end if the Hub that started this process is gone: its next run starts another."""
        try:
            await asyncio.wait_for(self._ending.wait(), RETRY_S)
        except TimeoutError:
            if os.getppid() != self._parent:
                log.info("The Hub is gone; the service ends")
                self._ending.set()
