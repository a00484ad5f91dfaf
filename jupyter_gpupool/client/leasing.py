"""Taking part of the pool for work that the caller runs itself, and giving it back.

Owns: the wait for a lease, and that a wait which is given up leaves nothing behind. Never: starting
the work, or printing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Callable

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.errors import PoolError

Json = dict[str, Any]
WAITING = "requested"
PAUSE = 1.0  # seconds between looks while a lease waits


def hold(
    client: Client,
    request: Mapping[str, Any],
    tell: Callable[[Json], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Json:
    """Ask for a lease and wait until it is held.

    Parameters
    ----------
    request
        The body of ``POST leases``.
    tell
        Called with the lease whenever what it waits for has changed.

    Raises
    ------
    PoolError
        The request is refused, or the lease ended while it waited.
    KeyboardInterrupt
        The wait was given up; the request is withdrawn.
    """
    lease = client.acquire({**request, "wait": True})
    told = None
    try:
        while lease["state"] == WAITING:
            if lease.get("waiting") != told:
                told = lease["waiting"]
                tell(lease)
            sleep(PAUSE)
            lease = client.lease(lease["id"])
    except BaseException:
        client.give_back(lease["id"])
        raise
    if lease["state"] != "held":
        raise PoolError("lease_lost", f"The lease {lease['id']} ended before it could be used.")
    return lease


@contextmanager
def held(client: Client, request: Mapping[str, Any], tell: Callable[[Json], None]) -> Iterator[Json]:
    """Hold a lease for the length of a ``with``."""
    lease = hold(client, request, tell)
    try:
        yield lease
    finally:
        client.give_back(lease["id"])
