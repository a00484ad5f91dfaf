"""The pool of this kernel.

Owns: the one client that magics, Python functions and widgets of a process share. Never: looks for the
pool before somebody asks something of it.
"""

from __future__ import annotations

import os
import sys

from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.find import find_pool

_clients: dict[tuple[str | None, ...], Client] = {}
_NAMES = ("GPUPOOL_URL", "GPUPOOL_HOME", "GPUPOOL_SIMULATE")


def client() -> Client:
    """Return a client of the pool that the environment names; its service starts if it has to.

    Raises
    ------
    PoolError
        There is no pool to be found.
    """
    names = tuple(os.environ.get(name) for name in _NAMES)
    if names not in _clients:
        _clients[names] = Client(find_pool(os.environ, progress=_say))
    return _clients[names]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
