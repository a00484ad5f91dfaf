"""The service's process.

Owns: `serve`: the process's place, its log, and its exit code. Jobs belong to the engine's launcher, so the
service may end at any moment, in any way. Never: what requests mean.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from jupyter_gpupool.client.enable import make_portable
from jupyter_gpupool.engines.local.cgroups import leave_own_cgroup, return_own_cgroup
from jupyter_gpupool.service.background import detach
from jupyter_gpupool.service.config import ServiceConfig
from jupyter_gpupool.service.core import open_service
from jupyter_gpupool.service.serving import REFUSALS, announce, attend, obey_signals, why_not

SWITCH_INTERVAL_S = 0.0005
"""How long a plan may keep a request from the interpreter."""


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
    if config.hub:
        return _serve_hub(config, on_ready)
    if not background:
        return _serve_here(config, on_ready)
    caller = detach(config.log_file)
    if isinstance(caller, int):
        return caller
    sys.exit(_serve_here(config, caller.tell_ready, in_terminal=False))


def _serve_hub(config: ServiceConfig, on_ready: Callable[[], None] | None) -> int:
    """Serve where the Hub, or systemd, has put this process; what is wrong is said by the service itself."""
    with suppress(*REFUSALS):
        config.home.make()
    _log_to(config, in_terminal=True)
    asyncio.run(run(config, on_ready=on_ready))
    return 0


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
        print(f"jupyter gpupool serve: {why_not(error, config.home)}", file=sys.stderr, flush=True)
        return 1
    finally:
        return_own_cgroup(config.home.path)
    return 0


async def run(config: ServiceConfig, *, on_ready: Callable[[], None] | None = None, **parts: Any) -> None:
    """Serve a pool in this event loop until asked to stop.

    Parameters
    ----------
    parts
        Other parts than the usual ones; see `open_service`.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if config.hub:
        from jupyter_gpupool.service.under_hub import HubService  # needs the extra `hub`

        await HubService(config, config.hub, parts).run(on_ready)
        return
    async with AsyncExitStack() as stack:
        service = await open_service(stack, config, **parts)
        obey_signals(stack, service.stop)
        await attend(stack, service, announce(stack, service), on_ready)


def _log_to(config: ServiceConfig, *, in_terminal: bool) -> None:
    """Write the log to its file, and in the foreground to the terminal too.

    Raises
    ------
    OSError
        The file cannot be written; a Hub's service does without, for the Hub keeps what it says.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler()] if in_terminal else []
    try:
        handlers.append(logging.FileHandler(config.log_file))
    except OSError:
        if config.hub is None:
            raise
    logging.basicConfig(
        level=logging.INFO, handlers=handlers, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("tornado.application").setLevel(logging.WARNING)
