"""The service's process.

Owns: `serve`: the socket, the signals, the log, and ending by itself when nothing is live. Jobs belong to
the engine's launcher, so the service may end at any moment, in any way. Never: what requests mean.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.enable import make_portable
from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.files import write_whole
from jupyter_gpupool.devices.base import DevicesError
from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.engines.local.cgroups import leave_own_cgroup, return_own_cgroup
from jupyter_gpupool.ledger import LedgerError
from jupyter_gpupool.policy.problems import PolicyError
from jupyter_gpupool.service.application import application, by_peer
from jupyter_gpupool.service.background import detach
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import Service, open_service
from jupyter_gpupool.service.moments import iso

log = logging.getLogger("gpupool")

IDLE_CHECK_S = 5.0
SWITCH_INTERVAL_S = 0.0005
"""How long a plan may keep a request from the interpreter."""
YOUNG_OBJECTS = 50_000
"""How many new objects there may be before the collector looks for cycles; by default 700."""
MAX_BODY = 16 * 1024 * 1024

REFUSALS = (PoolError, DevicesError, LedgerError, EngineError, PolicyError)
"""What keeps a pool from being served: one sentence each."""


def serve(
    config: ServiceConfig, *, background: bool = False, on_ready: Callable[[], None] | None = None
) -> int:
    """Serve a pool until asked to stop; return the exit code.

    Parameters
    ----------
    background
        Leave the caller's terminal, session and control group; the call then returns as soon as the
        service answers, and the service goes on in a process of its own, in which the call never returns.
    on_ready
        Called when the service answers; not in the background.
    """
    os.umask(0o077)
    if not background:
        return _serve_here(config, on_ready)
    caller = detach(config.log_file)
    if isinstance(caller, int):
        return caller
    sys.exit(_serve_here(config, caller.tell_ready, in_terminal=False))


def _serve_here(
    config: ServiceConfig, on_ready: Callable[[], None] | None, *, in_terminal: bool = True
) -> int:
    try:
        config.home.make()
        make_portable(config.home)
        leave_own_cgroup(config.home.path)
        _log_to(config, in_terminal=in_terminal)
        asyncio.run(run(config, on_ready=on_ready))
    except REFUSALS as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or config.home.path} cannot be used: {error.strerror or error}.")
    finally:
        return_own_cgroup(config.home.path)
    return 0


def _refuse(sentence: str) -> int:
    print(f"jupyter gpupool serve: {sentence}", file=sys.stderr, flush=True)
    return 1


async def run(config: ServiceConfig, *, on_ready: Callable[[], None] | None = None, **parts: Any) -> None:
    """Serve a pool in this event loop until asked to stop.

    Parameters
    ----------
    parts
        Other parts than the usual ones; see `open_service`.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with AsyncExitStack() as stack:
        service = await open_service(stack, config, **parts)
        calm_collector()
        server = _listen(stack, service)
        _describe(stack, service)
        if threading.current_thread() is threading.main_thread():
            _obey_signals(stack, service)
        if config.self_started:
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


def _obey_signals(stack: AsyncExitStack, service: Service) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
        stack.callback(loop.remove_signal_handler, number)


def _describe(stack: AsyncExitStack, service: Service) -> None:
    """Say who serves this home, for clients that must decide whether to start or replace a service."""
    record = {
        "pid": os.getpid(),
        "version": __version__,
        "pool": service.config.simulate,
        "started": iso(service.now),
        "python": sys.executable,
    }
    target = service.config.home.service_record
    write_whole(target, json.dumps(record))
    stack.callback(target.unlink, missing_ok=True)


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


def _log_to(config: ServiceConfig, *, in_terminal: bool) -> None:
    """Write the log to its file, and in the foreground to the terminal too."""
    handlers: list[logging.Handler] = [logging.FileHandler(config.log_file)]
    if in_terminal:
        handlers.append(logging.StreamHandler())
    logging.basicConfig(
        level=logging.INFO, handlers=handlers, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
