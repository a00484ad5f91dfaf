"""Unpacking a snapshot: only what was promised, only where it belongs.

Owns: checking the digest and every member of the tar, and writing the files. Never: a link, a
device, a name outside the folder, or more than the caps.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path, PurePosixPath

MAX_FILES = 100_000
MAX_BYTES = 16 << 30


class BadSnapshotError(Exception):
    """The snapshot cannot be used; `str()` is one clear sentence."""


def unpack(
    snapshot: BufferedReader,
    sha256: str,
    into: Path,
    *,
    max_files: int = MAX_FILES,
    max_bytes: int = MAX_BYTES,
) -> None:
    """Verify `snapshot` against `sha256` and write its files below `into`, which must be empty.

    Raises
    ------
    BadSnapshotError
        The digest differs, the tar is damaged, or a member is not a plain file or folder inside `into`.
    OSError
        The disk refuses (full, read-only).
    """
    if hashlib.file_digest(snapshot, "sha256").hexdigest() != sha256:
        raise BadSnapshotError(
            "The snapshot's content differs from its SHA-256 digest; submit the job again."
        )
    snapshot.seek(0)
    try:
        with tarfile.open(fileobj=snapshot, mode="r:") as tar:
            for member in _checked(tar, max_files, max_bytes):
                _write(tar, member, into / member.name)
    except (tarfile.TarError, FileExistsError, NotADirectoryError) as error:
        raise BadSnapshotError(f"The snapshot is not a usable tar ({error}); submit the job again.") from None


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one checked member, as this process's user (Python before 3.11.4 has no extraction filters)."""
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with source, target.open("xb") as file:
        shutil.copyfileobj(source, file)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _checked(tar: tarfile.TarFile, max_files: int, max_bytes: int) -> Iterator[tarfile.TarInfo]:
    size = 0
    for count, member in enumerate(tar, start=1):
        path = PurePosixPath(member.name)
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) or member.issparse():
            raise BadSnapshotError(
                f"The snapshot holds {member.name!r}, which is neither a plain file nor a folder."
            )
        if path.is_absolute() or ".." in path.parts or "\0" in member.name:
            raise BadSnapshotError(f"The snapshot holds {member.name!r}, which lies outside its own folder.")
        size += member.size
        if count > max_files or size > max_bytes:
            raise BadSnapshotError(
                f"The snapshot holds more than the {max_files} files or {max_bytes >> 20} MiB allowed."
            )
        yield member
