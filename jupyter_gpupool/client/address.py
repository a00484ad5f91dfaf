"""The address of a pool, as people and configurations write it.

Owns: ``unix:/path/to/hub.sock?uid=990``, ``https://host/services/gpupool`` and what they mean. Never: opens
a connection.
"""

from __future__ import annotations

import ipaddress
import os
from typing import NamedTuple, Union
from urllib.parse import urlsplit

from jupyter_gpupool.client.errors import Refused
from jupyter_gpupool.client.names import PREFIX

_OWNER = "?uid="


class UnixAddress(NamedTuple):
    """A Unix socket; `owner` is the uid that serves it, None where that is the caller's own."""

    path: str
    owner: int | None

    @property
    def base(self) -> str:
        """The path under which the service answers."""
        return PREFIX

    def __str__(self) -> str:
        return f"unix:{self.path}" + ("" if self.owner is None else f"{_OWNER}{self.owner}")


class HttpAddress(NamedTuple):
    """A web address; `secure` is https, and the rest is this machine's own loopback."""

    secure: bool
    host: str
    port: int | None
    base: str


Address = Union[UnixAddress, HttpAddress]


def parse(url: str) -> Address:
    """Read an address.

    Raises
    ------
    Refused
        When it is not understood, or is plain http to another machine.
    """
    return _unix(url) if url.startswith("unix:") else _http(url)


def is_loopback(host: str) -> bool:
    """Tell whether packets to `host` stay on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unix(url: str) -> UnixAddress:
    path, named, owner = url[len("unix:") :].partition(_OWNER)
    if not os.path.isabs(path):
        raise Refused("invalid_url", f"{url}: the path of a socket must be absolute.")
    if named and not (owner.isascii() and owner.isdigit()):
        raise Refused("invalid_url", f"{url}: after uid= comes the number of the account that serves it.")
    return UnixAddress(path, int(owner) if named else None)


def _http(url: str) -> HttpAddress:
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        scheme, host, port = "", "", None
    if scheme not in ("http", "https") or not host:
        raise Refused(
            "invalid_url",
            f"{url} is not an address.",
            hint="Write unix:/path/to/service.sock or https://host/services/gpupool.",
        )
    if scheme == "http" and not is_loopback(host):
        raise Refused(
            "unsafe_url",
            f"{url}: plain http would show your token and your code to the network.",
            hint="Use https, or a Unix socket.",
        )
    return HttpAddress(scheme == "https", host, port, parts.path.rstrip("/") or PREFIX)
