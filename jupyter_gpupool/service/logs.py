"""Reading the files of a job's folder, which the job itself can write.

Owns: opening below a folder without following a link, and following a log. Never: opening
anything but a regular file, or trusting a name that comes from a request.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1024 * 1024
_PAUSES = (0.01, 0.02, 0.05, 0.1)


class NoSuchFileError(Exception):
    """The path is not a regular file below the folder."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One regular file: name, bytes, and when it was last written (Unix seconds)."""

    name: str
    size: int
    modified: float


@contextmanager
def open_below(root: Path, *parts: str) -> Iterator[int]:
    """Open the regular file `parts` below `root` for reading, following no link on the way.

    Raises
    ------
    NoSuchFileError
        It is missing, a link, a folder or a device, or a part is not a plain name.
    """
    if not parts or any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise NoSuchFileError
    with ExitStack() as opened:

        def open_part(name: str | Path, flags: int, within: int | None = None) -> int:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=within)
            opened.callback(os.close, descriptor)
            return descriptor

        try:
            within = open_part(root, os.O_DIRECTORY)
            for part in parts[:-1]:
                within = open_part(part, os.O_DIRECTORY | os.O_NOFOLLOW, within)
            file = open_part(parts[-1], os.O_NOFOLLOW | os.O_NONBLOCK, within)  # a fifo must not make us wait
        except OSError as error:
            raise NoSuchFileError from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NoSuchFileError
        yield file


def read_at(root: Path, parts: tuple[str, ...], offset: int, size: int = CHUNK) -> tuple[bytes, int]:
    """Return up to `size` bytes from `offset` (negative: from the end) and the offset after them.

    A file that is not there yet reads as empty.
    """
    try:
        with open_below(root, *parts) as file:
            length = os.fstat(file).st_size
            start = max(0, length + offset) if offset < 0 else offset
            data = os.pread(file, size, start)
            return data, start + len(data)
    except NoSuchFileError:
        return b"", max(0, offset)


def tail(root: Path, parts: tuple[str, ...], size: int = 64 * 1024) -> str:
    """Return the end of a text file; bytes that are no UTF-8 are replaced."""
    data, _ = read_at(root, parts, -size, size)
    return data.decode("utf-8", "replace")


async def follow(
    read: Callable[[], tuple[bytes, int]], ended: Callable[[], bool], wait_s: float
) -> tuple[bytes, int, bool]:
    """Read until there is something, the writer has ended, or `wait_s` seconds have passed.

    Returns
    -------
    tuple
        The bytes, the next offset, and whether nothing more will ever come after them.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    turn = 0
    while True:
        over = ended()  # before reading, so that the last line is never missed
        data, offset = read()
        if data or over or loop.time() >= deadline:
            return data, offset, over and len(data) < CHUNK
        await asyncio.sleep(min(_PAUSES[min(turn, len(_PAUSES) - 1)], max(0.0, deadline - loop.time())))
        turn += 1


def list_files(root: Path, folder: str) -> list[FileEntry]:
    """List the regular files directly in a folder below `root`, by name."""
    try:
        descriptor = os.open(root / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        found = []
        for name in sorted(os.listdir(descriptor)):
            try:
                info = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(info.st_mode):
                found.append(FileEntry(name, info.st_size, info.st_mtime))
        return found
    finally:
        os.close(descriptor)
