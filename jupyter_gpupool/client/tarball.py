"""A snapshot as bytes: a deterministic tar, and its name.

Owns: the format (sorted names, no times, no owners) and the caps. Never: which files belong in it.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

RESERVED = ".gpupool"  # the folder of payloads: never a file of the user's


class Content(NamedTuple):
    """One file of a snapshot."""

    data: bytes
    executable: bool = False


@dataclass(frozen=True)
class Snapshot:
    """What a job runs: the same files give the same bytes and the same name on every machine.

    `size` counts the bytes of the files, without the tar around them.
    """

    sha256: str
    data: bytes
    files: tuple[str, ...]
    size: int

    @property
    def own_files(self) -> tuple[str, ...]:
        """The names of the user's files, without payloads."""
        return tuple(name for name in self.files if not name.startswith(f"{RESERVED}/"))


def pack(files: Mapping[str, Content]) -> Snapshot:
    """Return the tar of `files`, by name, with mtime, uid and gid 0 and modes 0644 or 0755."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name].data)
            member.mode = 0o755 if files[name].executable else 0o644
            tar.addfile(member, io.BytesIO(files[name].data))
    data = buffer.getvalue()
    size = sum(len(content.data) for content in files.values())
    return Snapshot(hashlib.sha256(data).hexdigest(), data, tuple(sorted(files)), size)
