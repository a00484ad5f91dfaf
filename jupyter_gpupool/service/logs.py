"""Reading what a job writes while it writes it.

Owns: a file from an offset, its end, and following it. Never: opening anything, which is the engine's: the
files may be another account's (see `JobFiles`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing

from jupyter_gpupool.engines.base import JobFiles, NoSuchFileError
from jupyter_gpupool.service.aside import aside

CHUNK = 1024 * 1024
_PAUSES = (0.01, 0.02, 0.05, 0.1)


class Growing:
    """A file of a job that may not be there yet; once it is, it stays open until `close`."""

    def __init__(self, files: JobFiles, job: int, *parts: str):
        self._files = files
        self._job = job
        self._parts = parts
        self._file: int | None = None

    def read(self, offset: int, size: int = CHUNK) -> tuple[bytes, int]:
        """Return up to `size` bytes from `offset` (negative: from the end) and the offset after them.

        A file that is not there yet reads as empty.

        Raises
        ------
        EngineError
            The engine cannot be asked for it now.
        """
        if self._file is None:
            try:
                self._file = self._files.open(self._job, *self._parts)
            except NoSuchFileError:
                return b"", max(0, offset)
        length = os.fstat(self._file).st_size
        start = max(0, length + offset) if offset < 0 else offset
        data = os.pread(self._file, size, start)
        return data, start + len(data)

    def close(self) -> None:
        """Let go of it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def tail(files: JobFiles, job: int, *parts: str, size: int = 64 * 1024) -> str:
    """Return the end of a text file; bytes that are no UTF-8 are replaced.

    Raises
    ------
    EngineError
        As `Growing.read`.
    """
    with closing(Growing(files, job, *parts)) as file:
        data, _ = file.read(-size, size)
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
        data, offset = await aside(read)
        if data or over or loop.time() >= deadline:
            return data, offset, over and len(data) < CHUNK
        await asyncio.sleep(min(_PAUSES[min(turn, len(_PAUSES) - 1)], max(0.0, deadline - loop.time())))
        turn += 1
