"""Who is at the other end of a connection inside this machine, before anything is sent there.

Owns: connections over a Unix socket or a loopback port that go through only to the user's own account, to
root, or to the account that the address names. Never: what is sent.
"""

from __future__ import annotations

import errno
import http.client
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple, Union

from jupyter_gpupool.client.address import UnixAddress
from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.home import check_private
from jupyter_gpupool.client.peercred import peer_of

MAX_LINKS = 40
TCP_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENING = "0A"

Ip = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket that no stranger serves."""

    def __init__(self, address: UnixAddress, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._address = address

    def connect(self) -> None:
        """Check the way there, connect, then ask the kernel who listens."""
        path, owner = self._address
        if owner is None:
            check_private(Path(path).parent)
        else:
            check_way(path, trusted(owner))
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(path)
            check_peer(self.sock, path, trusted(owner))
        except BaseException:
            self.close()
            raise


class LoopbackConnection(http.client.HTTPConnection):
    """HTTP to a port of this machine that no stranger took while its service was down."""

    def connect(self) -> None:
        """Connect, then ask the kernel who listens."""
        super().connect()
        try:
            assert self.sock is not None
            check_port(self.sock, trusted(None))
        except BaseException:
            self.close()
            raise


def trusted(owner: int | None) -> frozenset[int]:
    """Return the uids that may serve: one's own, root's, and the one that an address names."""
    return frozenset({os.geteuid(), 0} if owner is None else {os.geteuid(), 0, owner})


def check_way(path: str, uids: Collection[int]) -> None:
    """Refuse a path on which somebody else could have put something in the place of the socket.

    Raises
    ------
    Refused
        When a folder, a link or the socket itself belongs to none of `uids`, or others can write a folder.
    OSError
        When there is no such path.
    """
    for step in _steps(path):
        found = os.lstat(step)
        if found.st_uid not in uids:
            raise Refused(
                "unsafe_folder",
                f"{step}, on the way to the pool's socket {path}, belongs to uid {found.st_uid}; "
                "nothing was sent.",
                hint="Tell your administrator.",
            )
        if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            raise Refused(
                "unsafe_folder",
                f"Others can write to {step} (mode {stat.S_IMODE(found.st_mode):04o}), on the way to the "
                f"pool's socket {path}; nothing was sent.",
                hint="Tell your administrator.",
            )


def check_peer(sock: socket.socket, path: str, uids: Collection[int]) -> None:
    """Refuse a Unix socket that another user's process listens on.

    Raises
    ------
    Refused
        When the listener's uid is none of `uids`.
    """
    if hasattr(socket, "SO_PEERCRED"):
        uid = peer_of(sock).uid
    else:
        uid = os.stat(path).st_uid
    if uid not in uids:
        raise Refused(
            "unsafe_socket",
            f"The socket {path} is served by uid {uid}, not by {_named(uids)}; nothing was sent.",
            hint="Set GPUPOOL_HOME to a folder of your own." if uids == trusted(None) else None,
        )


def check_port(sock: socket.socket, uids: Collection[int]) -> None:
    """Refuse a loopback port that another user's process listens on.

    The listener and, once it has taken the connection, its end of it must both belong to `uids`: so a
    stranger who leaves the port to its owner in between is found, too. Systems without ``/proc/net`` do
    not say; there every port passes.

    Raises
    ------
    Refused
        When the listener's uid is none of `uids`, or nobody seems to listen.
    """
    if not os.path.exists(TCP_TABLES[0]):
        return
    there, here = _end(sock.getpeername()), _end(sock.getsockname())
    rows = list(_tcp_rows())
    listeners = [row for row in rows if row.listens_at(*there)]
    theirs = [row for row in rows if (row.local, row.remote) == (there, here)]
    strangers = {row.uid for row in (*listeners, *theirs)} - set(uids)
    if strangers or not listeners:
        who = f"served by uid {min(strangers)}" if strangers else "served by an account that cannot be told"
        raise Refused(
            "unsafe_port",
            f"Port {there[1]} of this machine is {who}, not by {_named(uids)}; nothing was sent.",
            hint="Use the https address, or a port that only root can serve.",
        )


class _Row(NamedTuple):
    local: tuple[Ip, int]
    remote: tuple[Ip, int]
    state: str
    uid: int

    def listens_at(self, ip: Ip, port: int) -> bool:
        at, at_port = self.local
        return self.state == LISTENING and at_port == port and (at == ip or at.is_unspecified)


def _tcp_rows() -> Iterator[_Row]:
    for table in TCP_TABLES:
        try:
            with open(table, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except FileNotFoundError:  # no IPv6
            continue
        for line in lines:
            words = line.split()
            yield _Row(_hex_end(words[1]), _hex_end(words[2]), words[3], int(words[7]))


def _hex_end(text: str) -> tuple[Ip, int]:
    """Read an end such as ``0100007F:1F90``: words of four bytes, each in the machine's own order."""
    address, port = text.split(":")
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    return _plain(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))), int(port, 16)


def _end(name: tuple[str, int]) -> tuple[Ip, int]:
    return _plain(ipaddress.ip_address(name[0])), name[1]


def _plain(address: Ip) -> Ip:
    """Return the IPv4 address that an IPv6 socket shows as its own kind."""
    return getattr(address, "ipv4_mapped", None) or address


def _steps(path: str) -> Iterator[str]:
    """Yield every folder and link that is passed on the way to `path`, and `path` itself."""
    pending, at, links = list(reversed(Path(path).parts)), os.sep, 0
    while pending:
        part = pending.pop()
        at = os.path.dirname(at) if part == os.pardir else os.path.join(at, part)
        yield at
        if os.path.islink(at):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            pending.extend(reversed(Path(os.readlink(at)).parts))
            at = os.path.dirname(at)


def _named(uids: Collection[int]) -> str:
    others = sorted(set(uids) - trusted(None))
    return f"uid {others[0]}" if others else f"you (uid {os.geteuid()})"
