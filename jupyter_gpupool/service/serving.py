"""One open service, from its first request to its last.

Owns: the socket of the service's own account, the note on who serves, and ending by itself when nothing is
live. Never: opening the service, or the process (see `main`, `under_hub`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.devices.base import DevicesError
from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.ledger import LedgerError
from jupyter_gpupool.policy.problems import PolicyError
from jupyter_gpupool.service.application import application, by_peer
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.takeover import describe

log = logging.getLogger("gpupool")

IDLE_CHECK_S = 5.0
YOUNG_OBJECTS = 50_000
"""How many new objects there may be before the collector looks for cycles; by default 700."""
MAX_BODY = 16 * 1024 * 1024

REFUSALS = (PoolError, DevicesError, LedgerError, EngineError, PolicyError, OSError)
"""What keeps a pool from being served: one sentence each; see `why_not`."""


def why_not(error: Exception, home: Home) -> str | None:
    """Say why a pool cannot be served; None for an error that nobody has foreseen."""
    if isinstance(error, OSError):
        return f"{error.filename or home.path} cannot be used: {error.strerror or error}."
    return str(error) if isinstance(error, REFUSALS) else None


def announce(stack: AsyncExitStack, service: Service) -> HTTPServer:
    """Listen on the socket of the service's own account, and write down who does.

    Raises
    ------
    OSError, PoolError
        Something is in the way, or the disk is full.
    """
    server = _listen(stack, service)
    stack.callback(service.config.home.service_record.unlink, missing_ok=True)
    describe(service.config, service.now)
    return server


async def attend(
    stack: AsyncExitStack,
    service: Service,
    server: HTTPServer,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Answer until the service is asked to stop, then end what it was asked to end."""
    calm_collector()
    if service.config.self_started:
        idle = asyncio.create_task(_end_when_idle(service))
        stack.callback(idle.cancel)
    log.info("Serving %s", service.description)
    if on_ready:
        on_ready()
    await service.stopping.wait()
    await _stop_listening(server, service)
    if not service.keep_jobs:
        await service.end_all()
    elif service.retire:
        await service.engine.shutdown(kill_jobs=False)
    log.info("The service ends; %s", "its jobs go on" if service.keep_jobs else "its jobs were ended")


def calm_collector() -> None:
    """Let the garbage collector look rarely: ten thousand waiting jobs are no garbage, and have no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def obey_signals(stack: AsyncExitStack, stop: Callable[[], None]) -> None:
    """Call `stop` when the process is asked to end."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
        stack.callback(loop.remove_signal_handler, number)


def _listen(stack: AsyncExitStack, service: Service) -> HTTPServer:
    """Answer on the socket, which only this user can reach."""
    server = HTTPServer(application(service, by_peer), max_body_size=MAX_BODY)
    path = service.config.home.service_socket
    if path.exists() and not path.is_socket():
        raise PoolError("conflict", f"{path} is in the way of the service's socket: move it away.")
    server.add_socket(bind_unix_socket(str(path), mode=0o600, backlog=1024))
    stack.callback(path.unlink, missing_ok=True)
    return server


async def _stop_listening(server: HTTPServer, service: Service) -> None:
    """Take no further request: whoever makes one finds, or starts, the next service."""
    server.stop()
    service.bus.close()
    await asyncio.sleep(0)  # the streams say goodbye
    await server.close_all_connections()


async def _end_when_idle(service: Service) -> None:
    """End the service when nothing has been live for a while."""
    loop = asyncio.get_running_loop()
    patience = service.config.idle_exit_s
    last_use = loop.time()
    while loop.time() - last_use < patience:
        await asyncio.sleep(min(IDLE_CHECK_S, patience / 4))
        if not service.idle:
            last_use = loop.time()
    log.info("Nothing has been live for %g s", patience)
    service.stop_idle()
