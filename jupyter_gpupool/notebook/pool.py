"""The pool of this kernel.

Owns: the one client that magics, Python functions and widgets of a process share. Never: looks for the
pool before somebody asks something of it.
"""

from __future__ import annotations

import os
import sys

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.find import Place, find_pool, place

_clients: dict[tuple[Place, str | None], Client] = {}


def client() -> Client:
    """Return a client of the pool that the environment names; its service starts if it has to.

    Raises
    ------
    PoolError
        There is no pool to be found.
    """
    asked = place(os.environ), os.environ.get("GPUPOOL_SIMULATE")
    if asked not in _clients:
        _clients[asked] = Client(find_pool(os.environ, progress=_say))
    return _clients[asked]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
