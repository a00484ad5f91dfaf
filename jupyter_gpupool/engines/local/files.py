"""The files of jobs that run under this process's own account, which the jobs themselves can write.

Owns: opening below a job's folder without following a link, and opening nothing but regular files. Never:
trusting a name that comes from a request.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jupyter_gpupool.engines.base import FileEntry, NoSuchFileError

_WITHOUT_LINKS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class DirectFiles:
    """The files below `jobs`; see `JobFiles`."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs

    def open(self, job: int, *parts: str) -> int:
        """Return a descriptor to read a regular file; see `JobFiles.open`."""
        if not parts:
            raise NoSuchFileError
        try:
            with _folder(self._jobs, str(job), *parts[:-1]) as within:
                name = _plain(parts[-1])
                file = os.open(name, _WITHOUT_LINKS | os.O_NONBLOCK, dir_fd=within)  # a fifo must not hold us
        except OSError as error:
            raise NoSuchFileError from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise NoSuchFileError
        return file

    def list(self, job: int, *parts: str) -> list[FileEntry]:
        """Return the regular files in a folder, by name; see `JobFiles.list`."""
        found = []
        try:
            with _folder(self._jobs, str(job), *parts) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        info = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(info.st_mode):
                            found.append(FileEntry(entry.name, info.st_size, info.st_mtime))
        except (OSError, NoSuchFileError):
            return []
        return sorted(found, key=lambda file: file.name)

    def remove(self, job: int) -> None:
        """Delete the job's folder; see `JobFiles.remove`."""
        shutil.rmtree(self._jobs / str(job), ignore_errors=True)


@contextmanager
def _folder(root: Path, *parts: str) -> Iterator[int]:
    """Open the folder `parts` below `root`, following no link on the way."""
    within = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            inner = os.open(_plain(part), _WITHOUT_LINKS | os.O_DIRECTORY, dir_fd=within)
            os.close(within)
            within = inner
        yield within
    finally:
        os.close(within)


def _plain(part: str) -> str:
    if part in ("", ".", "..") or "/" in part or "\0" in part:
        raise NoSuchFileError
    return part
