"""Small files that are there whole, or as they were.

Owns: writing one in a step. Never: which files there are.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Give a file this content: beside it first, so that nobody reads a part; nothing is written if it is so.

    `mode` is that of a new file, less the umask.

    Raises
    ------
    OSError
        It cannot be written; what was there stays.
    """
    data = text.encode("utf-8")
    if path.exists() and path.read_bytes() == data:
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb") as file:
        file.write(data)
    os.replace(beside, path)
