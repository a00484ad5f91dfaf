"""What this server's kernels do, said to the pool every minute: the pool's rules for idle sessions go by it.

Owns: which kernels run a cell, and whom that is said to. Never: starting a service, or what counts as idle.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.find import place

EVERY_S = 60.0


async def say(kernels: Any) -> None:
    """Say what the kernels of a kernel manager do; a pool that does not answer hears it the next time."""
    managers = [kernels.get_kernel(id) for id in kernels.list_kernel_ids()]
    said = {
        "server": os.environ.get("JUPYTERHUB_SERVER_NAME"),
        "kernels": [{"pid": _pid(manager), "busy": _busy(manager)} for manager in managers],
    }
    await asyncio.get_running_loop().run_in_executor(None, _tell, json.dumps(said).encode())


def _pid(manager: Any) -> int | None:
    return getattr(getattr(manager, "provisioner", None), "pid", None)


def _busy(manager: Any) -> bool:
    """Whether a cell runs in a kernel; one that nobody has connected to yet says nothing of itself."""
    return getattr(manager, "execution_state", None) == "busy"


def _tell(body: bytes) -> None:
    """Tell the service of this machine, or of the Hub that started this server: no other knows them."""
    try:
        pool = place(os.environ)
        if pool.home is None and pool.url != os.environ.get("GPUPOOL_HUB_URL"):
            return
        connection = pool.connection(pauses=())
        try:
            connection.request("POST", "activity", body, {"Content-Type": "application/json"})
        finally:
            connection.close()
    except PoolError:
        pass
