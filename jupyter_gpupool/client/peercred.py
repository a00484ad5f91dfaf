"""The process at the other end of a Unix socket, as the kernel vouches for it.

Owns: `peer_of` (SO_PEERCRED; Linux). Never: whether that process is welcome.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_UCRED = struct.Struct("3i")  # pid, uid, gid


class Peer(NamedTuple):
    """The process that connected, or listens: its number and its account's."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Ask the kernel who is at the other end.

    Raises
    ------
    OSError
        The connection is closed.
    """
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid)
