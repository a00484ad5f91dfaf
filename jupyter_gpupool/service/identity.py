"""Who is asking.

Owns: the step from a connection to an `Identity`, and the rule who may connect at all. A Hub's
tokens take their place here. Never: what an identity may do (see `routes`).
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from jupyter_gpupool.service.errors import forbidden

_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket, as the kernel vouches for it."""

    pid: int
    uid: int


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the pool.

    `hub_groups` is None where no Hub says who belongs where: then the policy's member lists do.
    """

    user: str
    uid: int
    pid: int
    admin: bool
    hub_groups: tuple[str, ...] | None = None


Identify = Callable[[Peer], Identity]


def peer_of(connection: socket.socket) -> Peer:
    """Ask the kernel who is at the other end (SO_PEERCRED)."""
    pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return Peer(pid, uid)


def identify(peer: Peer) -> Identity:
    """Return who a peer is: this service serves its own account, and root.

    Raises
    ------
    ApiError
        The peer runs under another account.
    """
    if peer.uid not in (os.geteuid(), 0):
        raise forbidden(f"This pool belongs to {user_name(os.geteuid())}; you are {user_name(peer.uid)}.")
    return Identity(user_name(peer.uid), peer.uid, peer.pid, admin=True)


@lru_cache(maxsize=64)
def user_name(uid: int) -> str:
    """Return an account's name; its number where the system has no name for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
