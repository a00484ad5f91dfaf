"""Where one user's pool keeps its files.

Owns: the names of the files and sockets under ``GPUPOOL_HOME``, and the rule for folders that others
must not write. Never: their contents.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpupool.client.errors import Refused

MAX_SOCKET_PATH = 100  # bytes; the kernel's own limit is 108 with the closing zero


@dataclass(frozen=True)
class Home:
    """The folder of one pool and the names in it."""

    path: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Home:
        """Return the home that the environment names: ``GPUPOOL_HOME``, or the user's state folder."""
        named = environ.get("GPUPOOL_HOME")
        if not named:
            state = environ.get("XDG_STATE_HOME") or "~/.local/state"
            named = os.path.join(state, "gpupool")
        return cls(Path(os.path.abspath(os.path.expanduser(named))))

    @property
    def run(self) -> Path:
        """The folder of the service's own files: never far away, unlike the sockets."""
        return self.path / "run"

    @property
    def sockets(self) -> Path:
        """The folder of the sockets: `run`, or a private one under ``/tmp`` where that path is too long."""
        if len(os.fsencode(self.run / "service.sock")) <= MAX_SOCKET_PATH:
            return self.run
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path(f"/tmp/gpupool-{os.geteuid()}-{digest}")

    @property
    def service_socket(self) -> Path:
        """The socket of the service's HTTP."""
        return self.sockets / "service.sock"

    @property
    def hub_socket(self) -> Path:
        """The socket where a Hub's service answers to the proxy, the spawner and users' servers."""
        return self.path / "hub" / "hub.sock"

    @property
    def service_record(self) -> Path:
        """``service.json``: pid, version, pool, start time and interpreter of the running service."""
        return self.run / "service.json"

    @property
    def portable(self) -> Path:
        """The folder that other interpreters put on their path."""
        return self.path / "portable"

    def url(self) -> str:
        """Return the address of this home's service."""
        return f"unix:{self.service_socket}"

    def make(self) -> None:
        """Create the folders that must exist before the service does, each private to the user."""
        for folder in (self.path, self.run, self.sockets):
            private_folder(folder)


def private_folder(path: Path) -> Path:
    """Create `path` with mode 0700 if it is absent, and check that nobody else can write there.

    Raises
    ------
    Refused
        When the folder belongs to another user, is a link, or is open to others.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except FileExistsError:
        raise Refused("unsafe_folder", f"{path} is not a folder.", hint="Move it away.") from None
    except OSError as error:
        raise Refused("unwritable_folder", f"The folder {path} cannot be made: {error.strerror}.") from error
    if os.path.islink(path) and path.parent == Path("/tmp"):
        raise Refused("unsafe_folder", f"{path} is a link that somebody made.", hint="Remove it.")
    check_private(path)
    return path


def check_private(path: Path) -> None:
    """Refuse a folder in which somebody else could put a file of the same name."""
    found = os.stat(path)
    if found.st_uid not in (os.geteuid(), 0):
        raise Refused(
            "unsafe_folder",
            f"The folder {path} belongs to uid {found.st_uid}, not to you (uid {os.geteuid()}).",
            hint="Set GPUPOOL_HOME to a folder of your own.",
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise Refused(
            "unsafe_folder",
            f"Others can write to the folder {path} (mode {stat.S_IMODE(found.st_mode):04o}).",
            hint=f"Close it with: chmod go-w {path}",
        )
