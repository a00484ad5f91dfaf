"""The code that jobs run: snapshots kept by owner and digest.

Owns: the snapshot folder; a snapshot is there whole and verified, or not at all. Never: looking
inside one; it is unpacked later, as the user, by the engine's runner.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpupool.service.errors import ApiError, invalid

MIB = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


class SnapshotStore:
    """All snapshots of all owners.

    Parameters
    ----------
    root
        The folder; made when the first snapshot comes.
    cap_mib
        The largest snapshot accepted.
    """

    def __init__(self, root: Path, cap_mib: int):
        self.root = root
        self.cap_mib = cap_mib

    def path(self, owner: str, digest: str) -> Path:
        """Return where a snapshot is or would be.

        Raises
        ------
        ApiError
            `digest` is not a SHA-256 in small hexadecimal letters.
        """
        if not _DIGEST.fullmatch(digest):
            raise invalid("A snapshot is named by its SHA-256: 64 hexadecimal digits in small letters.")
        return self.root / urllib.parse.quote(owner, safe="") / f"{digest}.tar"

    def has(self, owner: str, digest: str) -> bool:
        """Whether `owner` has uploaded this snapshot; what others uploaded does not count."""
        try:
            os.utime(self.path(owner, digest))  # whoever asks is about to use it: keep it a while longer
        except FileNotFoundError:
            return False
        return True

    def receive(self, owner: str, digest: str) -> Upload:
        """Begin an upload."""
        target = self.path(owner, digest)
        with _disk_errors():
            for needed in (self.root, target.parent):
                needed.mkdir(mode=0o700, exist_ok=True)
            return Upload(target, digest, self.cap_mib)

    def drop_unused(self, used: Iterable[tuple[str, str]], older_than: float) -> int:
        """Delete what no (owner, digest) of `used` names and nobody used since `older_than` (Unix time)."""
        kept = {self.path(owner, digest) for owner, digest in used}
        dropped = 0
        for file in self.root.glob("*/*"):
            if file not in kept and file.lstat().st_mtime < older_than:
                file.unlink(missing_ok=True)
                dropped += 1
        return dropped


class Upload:
    """One snapshot on its way in: `write` pieces, then `finish`; or `abandon`."""

    def __init__(self, target: Path, digest: str, cap_mib: int):
        self._target = target
        self._digest = digest
        self._cap_mib = cap_mib
        self._hash = hashlib.sha256()
        self._size = 0
        descriptor, self._part = tempfile.mkstemp(prefix=".part-", dir=target.parent)
        self._file = os.fdopen(descriptor, "wb")

    def write(self, data: bytes) -> None:
        """Take the next piece.

        Raises
        ------
        ApiError
            The snapshot grows beyond the cap, or the disk is full.
        """
        self._size += len(data)
        if self._size > self._cap_mib * MIB:
            raise too_large(self._size, self._cap_mib)
        self._hash.update(data)
        with _disk_errors():
            self._file.write(data)

    def finish(self) -> None:
        """Verify the digest and put the snapshot in its place, durably.

        Raises
        ------
        ApiError
            The bytes are not what their name says, or the disk is full.
        """
        if self._hash.hexdigest() != self._digest:
            raise invalid(
                f"The {self._size} bytes received have another SHA-256 than they should; send them again.",
                code="digest_mismatch",
            )
        with _disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._part, self._target)

    def abandon(self) -> None:
        """Forget what was received; harmless after `finish`."""
        try:
            self._file.close()
        except OSError:  # closing flushes, and the disk may be full
            pass
        Path(self._part).unlink(missing_ok=True)


def too_large(size: int, cap_mib: int) -> ApiError:
    """Build the refusal of a snapshot over the cap."""
    return ApiError(
        413,
        "snapshot_too_large",
        f"The snapshot has more than {cap_mib} MiB.",
        used=-(-size // MIB),
        limit=cap_mib,
        unit="MiB",
        hint="Leave data out of it with a .gitignore, or submit with --no-snapshot.",
    )


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Turn a full or read-only disk into the error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise ApiError(
            507,
            "disk_full",
            f"The pool cannot store the snapshot: {os.strerror(error.errno)}.",
            hint="Free some space where GPUPOOL_HOME lies, then submit again.",
        ) from error
