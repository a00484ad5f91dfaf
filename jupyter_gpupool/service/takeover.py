"""Who served this home before, and whether to follow.

Owns: what a service writes down about itself, whether one that still runs has lost its Hub, and asking such
a one to end, with its jobs kept. Never: ending a service that a living Hub has.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from jupyter_gpupool._version import __version__
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError, Refused
from jupyter_gpupool.client.files import write_whole
from jupyter_gpupool.client.home import Home
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.engines.local.proctree import look_at
from jupyter_gpupool.service.config import HubConfig, ServiceConfig
from jupyter_gpupool.service.moments import iso

PATIENCE_S = 10.0
"""How long a predecessor may take to end."""
LOOK_S = 0.05

Record = dict[str, Any]


def describe(config: ServiceConfig, now: int) -> None:
    """Say who serves this home, for clients and successors that must decide what to do about it."""
    record = {
        "pid": os.getpid(),
        "version": __version__,
        "pool": config.simulate,
        "started": iso(now),
        "python": sys.executable,
        "hub": config.hub.api_url if config.hub else None,
        "parent": os.getppid(),
    }
    write_whole(config.home.service_record, json.dumps(record))


def predecessor(home: Home) -> Record | None:
    """Return what the service that answers at this home wrote about itself; None if none does."""
    try:
        client = Client(Connection(home.url(), pauses=()))
        client.health()
        record: Record = json.loads(home.service_record.read_text(encoding="utf-8"))
    except (PoolError, OSError, ValueError):
        return None
    return record


def parent_of(pid: int) -> int | None:
    """Return the process that `pid` is a child of now; None once it has ended."""
    found = look_at(pid)
    return found.parent if found and not found.zombie else None


def objection(record: Record, hub: HubConfig, parent: int | None) -> str | None:
    """Say why a service must not be asked to end for another; None = its Hub is gone, and it was this one's.

    Parameters
    ----------
    record
        What it wrote about itself.
    parent
        The process that it is a child of now.
    """
    who = f"process {record['pid']}"
    if record.get("hub") is None:
        return f"{who} serves this pool, and no Hub started it: end it with `jupyter gpupool stop`."
    if record["hub"] != hub.api_url:
        return (
            f"{who} serves this pool for another Hub, the one at {record['hub']}: give each Hub a pool of "
            "its own (GPUPOOL_HOME), or end that service."
        )
    if parent == record["parent"]:
        return f"{who} serves this pool for this Hub already."
    return None


async def succeed(config: ServiceConfig, hub: HubConfig) -> None:
    """Have a predecessor that has lost its Hub end, with its jobs kept.

    Raises
    ------
    Refused
        A service that must not be ended is alive, or this one does not end.
    """
    record = await asyncio.to_thread(predecessor, config.home)
    if record is None:
        return
    if because := objection(record, hub, parent_of(record["pid"])):
        raise Refused("conflict", f"The pool at {config.home.path} is taken: {because}")
    await asyncio.to_thread(_ask_to_end, config.home)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while parent_of(record["pid"]) is not None:
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise Refused(
            "conflict",
            f"The service of the Hub's last run, process {record['pid']}, was asked to end "
            f"{PATIENCE_S:g} s ago and has not.",
            hint=f"End it by hand: kill {record['pid']}",
        ) from None


def _ask_to_end(home: Home) -> None:
    Client(Connection(home.url(), pauses=())).shutdown(keep_jobs=True)
