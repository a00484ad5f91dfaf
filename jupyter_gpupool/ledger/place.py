"""Where a ledger may lie: on a local, writable file system, and with one writer.

Owns the check of the mount table and the lock that keeps a second writer out. Knows nothing of
what the ledger holds.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jupyter_gpupool.ledger.errors import InUse, LedgerError, LedgerUnavailable

NETWORK = re.compile(
    "9p|acfs|afs|auristorfs|beegfs(_nodev)?|ceph(fs)?|cifs|coda|davfs|drvfs|fhgfs|gfs2?|glusterfs|gpfs|lustre|mmfs"
    "|ncpfs|nfs4?|ocfs2|orangefs|panfs|pvfs2|quobyte|smb3|smbfs|vboxsf|virtiofs|wekafs"
)
LOCAL_FUSE = frozenset({"fuse.ext2", "fuse.ext4", "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuseblk"})


@dataclass(frozen=True)
class Mount:
    """Where a file system is mounted, and of which type it is."""

    point: str
    fstype: str


def parse_mountinfo(text: str) -> list[Mount]:
    """Read the text of `/proc/self/mountinfo` (see proc_pid_mountinfo(5))."""
    mounts = []
    for line in text.splitlines():
        fields, _, tail = line.partition(" - ")
        mounts.append(Mount(_unescape(fields.split(" ")[4]), tail.split(" ")[0]))
    return mounts


def file_system(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that `path` lies on: the longest mount point above it, the last one mounted there."""
    above = [mount for mount in mounts if path.is_relative_to(mount.point)]
    return max(reversed(above), key=lambda mount: len(Path(mount.point).parts), default=None)


def refuse_network(folder: Path, mounts: Sequence[Mount] | None = None) -> None:
    """Refuse a folder on a network file system, where neither locks nor the write-ahead log can be trusted.

    Parameters
    ----------
    folder : Path
        The folder of the ledger, resolved.
    mounts : sequence of Mount, optional
        The mount table; by default that of this process (none where the system has no `/proc`).

    Raises
    ------
    LedgerError
        If the folder lies on a network file system.
    """
    mount = file_system(folder, _own_mounts() if mounts is None else mounts)
    if mount is not None and _is_network(mount.fstype):
        raise LedgerError(
            f"The ledger cannot lie in {folder}: it is on a network file system ({mount.fstype}, mounted at "
            f"{mount.point}), where locks do not hold; set GPUPOOL_HOME to a folder on a local disk."
        )


class WriterLock:
    """The lock that makes this process the one writer of a ledger, until it is released or the process ends.

    Parameters
    ----------
    ledger : Path
        The ledger; the lock is the file beside it that ends in ``.lock``, made if absent. It holds
        the writer's pid and since when, for people to read.
    now : int
        Seconds since the epoch.

    Raises
    ------
    LedgerError
        If another process holds it; the text names its pid.
    LedgerUnavailable
        If the file cannot be written.
    """

    def __init__(self, ledger: Path, now: int) -> None:
        path = ledger.with_suffix(".lock")
        with ExitStack() as undo:
            try:
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                undo.callback(os.close, self._file)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._write_holder(now)
            except BlockingIOError:
                raise InUse(
                    f"The ledger {ledger} is in use by {self._read_holder()}, and has one writer at a "
                    "time: stop that process first (`jupyter gpupool stop`), or set another GPUPOOL_HOME."
                ) from None
            except OSError as error:
                raise LedgerUnavailable(
                    f"The ledger's lock {path} cannot be had: {error.strerror}."
                ) from None
            undo.pop_all()

    def release(self) -> None:
        """Let another writer in."""
        os.close(self._file)

    def _write_holder(self, now: int) -> None:
        since = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} (since {since})\n".encode(), 0)

    def _read_holder(self) -> str:
        return os.pread(self._file, 100, 0).decode(errors="replace").strip() or "another process"


def _own_mounts() -> list[Mount]:
    try:
        return parse_mountinfo(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    except FileNotFoundError:
        return []


def _is_network(fstype: str) -> bool:
    return NETWORK.fullmatch(fstype) is not None or (fstype.startswith("fuse.") and fstype not in LOCAL_FUSE)


def _unescape(field: str) -> str:
    """Undo the kernel's octal escapes (a space is ``\\040``)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
