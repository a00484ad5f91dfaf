"""Where the pool's service is, as the Hub, its proxy and its servers see it.

Owns: the service's socket and account, the address that says both, and the token of a service that the
Hub does not run. Never: what is said over them.
"""

from __future__ import annotations

import os
import pwd
import secrets
from dataclasses import dataclass
from pathlib import Path

from traitlets import TraitError

from jupyter_gpupool.client.address import UnixAddress
from jupyter_gpupool.client.home import MAX_SOCKET_PATH, Home

SYSTEM_HOME = Path("/var/lib/gpupool/service")


@dataclass(frozen=True)
class ServiceAccount:
    """The account of the service; `name` is None where it is the Hub's own."""

    name: str | None
    uid: int
    gid: int


@dataclass(frozen=True)
class Place:
    """A service on this host: it listens on a socket in a folder that only its account can write."""

    home: Path
    account: ServiceAccount

    @property
    def socket(self) -> Path:
        """The socket for the proxy and for users' servers."""
        return Home(self.home).hub_socket

    @property
    def address(self) -> str:
        """The address for clients, who send no token to a socket of another account."""
        return str(UnixAddress(str(self.socket), self.account.uid))


def place_of(home: str | Path | None, service_user: str | None, *, demo: bool) -> Place:
    """Return where the service of a Hub on this host is.

    Raises
    ------
    TraitError
        The account is missing or unknown, or the folder's name is too long for a socket.
    """
    account = service_account(service_user, demo=demo)
    default = SYSTEM_HOME if account.name else Home.of(os.environ).path
    place = Place(Path(home).absolute() if home else default, account)
    if len(os.fsencode(place.socket)) > MAX_SOCKET_PATH:
        raise TraitError(
            f"{place.socket} has more than {MAX_SOCKET_PATH} bytes, too many for a socket: "
            "give setup(c, home=...) a folder with a shorter name."
        )
    return place


def service_account(name: str | None, *, demo: bool) -> ServiceAccount:
    """Return the account that the service runs as: the Hub's own, or another one where root runs the Hub."""
    own = ServiceAccount(None, os.geteuid(), os.getegid())
    if own.uid == 0 and name is None and not demo:
        raise TraitError(
            "The Hub runs as root, and the pool's service must not: make an account for it, and name it with "
            "setup(c, service_user='gpupool')."
        )
    if name is None:
        return own
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise TraitError(
            f"This machine has no account {name!r}; `jupyter gpupool install workstation` makes one."
        ) from None
    if found.pw_uid == own.uid:
        return own
    if own.uid != 0:
        raise TraitError(f"Only a Hub that root runs can start the pool's service as {name!r}.")
    return ServiceAccount(name, found.pw_uid, found.pw_gid)


def checked_url(url: str) -> str:
    """Return the address of a service on another host, without a slash at its end.

    Raises
    ------
    TraitError
        Tokens sent there could be read on the way, or taken by whoever listens there first.
    """
    if not url.startswith("https://"):
        raise TraitError(
            f"Users' tokens would go to {url} in the clear: give setup(c, url=...) an https:// address, "
            "or none for a service on this host."
        )
    return url.rstrip("/")


def standing_token(file: str | Path | None, reader: ServiceAccount | None) -> str:
    """Return the token in `file`, which is made for `reader` if it is absent.

    Raises
    ------
    TraitError
        No file was named, it cannot be used, or others may read it.
    """
    if file is None:
        raise TraitError(
            "A service that the Hub does not run needs setup(c, token_file=...), a file for its token."
        )
    path = Path(file)
    try:
        if not path.exists():
            _make_token(path, reader)
        if path.stat().st_mode & 0o007:
            raise TraitError(f"{path} is open to everybody; close it with: chmod o= {path}")
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise TraitError(f"{path} cannot hold the pool's token: {error.strerror}.") from None


def _make_token(path: Path, reader: ServiceAccount | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        if reader is not None and reader.name is not None:
            os.fchown(descriptor, -1, reader.gid)
            os.fchmod(descriptor, 0o640)
        opened.write(secrets.token_hex(32) + "\n")
