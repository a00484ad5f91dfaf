"""The files of jobs, which the jobs themselves can write.

Owns: opening below a job's folder without following a link, opening nothing but regular files, and the
two ways to get there: directly, or through a launcher that may read what we may not. Never: trusting a
name that comes from a request.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from jupyter_gpupool.client.peercred import peer_of
from jupyter_gpupool.engines.base import EngineError, FileEntry, JobFiles, NoSuchFileError
from jupyter_gpupool.engines.local.folders import OUT
from jupyter_gpupool.engines.local.protocol import Lines, encode, open_run_directory, socket_path

MOST_LISTED, DEEPEST = 10_000, 16
LONGEST_S, LOOKS = 10.0, 1000
_WITHOUT_LINKS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_ANSWER_S = 10.0
_READ = 1 << 18


class DirectFiles:
    """The files below `jobs`, opened by this process; see `JobFiles`.

    Root can open what the job's account cannot. So for root a file counts only if it is that account's,
    or root's own in a folder of root's: a hard link to a stranger's file is no file of the job.
    """

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs

    def open(self, job: int, *parts: str) -> int:
        """Return a descriptor to read a regular file; see `JobFiles.open`."""
        if not parts:
            raise NoSuchFileError
        try:
            with open_folder(self._jobs, str(job), *parts[:-1]) as within:
                owners = self._owners(job, within)
                name = _plain(parts[-1])
                file = os.open(name, _WITHOUT_LINKS | os.O_NONBLOCK, dir_fd=within)  # a fifo must not hold us
        except OSError as error:
            raise NoSuchFileError from error
        if not _counts(os.fstat(file), owners):
            os.close(file)
            raise NoSuchFileError
        return file

    def list(self, job: int, *parts: str) -> list[FileEntry]:
        """Return the regular files among the first `MOST_LISTED` in a folder; see `JobFiles.list`."""
        found: list[FileEntry] = []
        try:
            with open_folder(self._jobs, str(job), *parts) as folder, os.scandir(folder) as entries:
                owners = self._owners(job, folder)
                for entry in islice(entries, MOST_LISTED):
                    with suppress(FileNotFoundError):
                        info = entry.stat(follow_symlinks=False)
                        if _counts(info, owners):
                            found.append(FileEntry(entry.name, info.st_size, info.st_mtime))
        except (OSError, NoSuchFileError):
            return []
        return sorted(found, key=lambda file: file.name)

    def newest(self, job: int, *parts: str) -> float | None:
        """Return when a file in and below a folder was last written; see `JobFiles.newest`."""
        try:
            with open_folder(self._jobs, str(job), *parts) as folder:
                owners = self._owners(job, folder)
                infos = _in_time(_all_below(folder, DEEPEST))
                return max((info.st_mtime for info in infos if _counts(info, owners)), default=None)
        except (OSError, NoSuchFileError):
            return None

    def remove(self, job: int) -> None:
        """Delete the job's folder; see `JobFiles.remove`."""
        shutil.rmtree(self._jobs / str(job), ignore_errors=True)

    def _owners(self, job: int, within: int) -> set[int] | None:
        """Whose files count in the folder `within` of the job; None = anybody's that we may open."""
        if os.geteuid() != 0:
            return None
        account = os.stat(self._jobs / str(job) / OUT, follow_symlinks=False).st_uid
        return {account, os.fstat(within).st_uid} & {account, 0}


class LauncherFiles:
    """The files of the jobs of the launcher at `home`, opened by it; see `JobFiles`."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def open(self, job: int, *parts: str) -> int:
        """Return a descriptor that the launcher hands over; see `JobFiles.open`."""
        _, descriptors = self._ask("open", job=job, parts=parts)
        if not descriptors:
            raise NoSuchFileError
        return descriptors[0]

    def list(self, job: int, *parts: str) -> list[FileEntry]:
        """Return the regular files in a folder; see `JobFiles.list`."""
        found, _ = self._ask("files", job=job, parts=parts)
        return [FileEntry(*entry) for entry in found]

    def newest(self, job: int, *parts: str) -> float | None:
        """Return when a file in and below a folder was last written; see `JobFiles.newest`."""
        _, descriptors = self._ask("newest", job=job, parts=parts)
        with self._in_words(), socket.socket(fileno=descriptors[0]) as answer:
            answer.settimeout(LONGEST_S + _ANSWER_S)
            found, _ = _reply(answer)
        return None if found is None else float(found)

    def remove(self, job: int) -> None:
        """Have the job's folder deleted; see `JobFiles.remove`."""
        self._ask("remove", job=job)

    def _ask(self, op: str, **fields: Any) -> tuple[Any, tuple[int, ...]]:
        """Ask over a connection of its own; returns the result and the descriptors that came with it."""
        with self._in_words(), self._connection() as connection:
            connection.sendall(encode({"id": 0, "op": op, **fields}))
            return _reply(connection)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Say in a sentence what goes wrong with a connection."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or "it hung up"
            raise EngineError(f"The launcher in {self._home} opens no file now: {reason}.") from error

    def _connection(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_ANSWER_S)
        run_directory = open_run_directory(self._home, make=False)
        try:
            connection.connect(socket_path(run_directory))
        except OSError:
            connection.close()
            raise
        finally:
            os.close(run_directory)
        if peer_of(connection).uid not in (os.geteuid(), 0):
            connection.close()
            raise EngineError(f"The launcher socket in {self._home / 'run'} belongs to another user.")
        return connection


class EngineFiles:
    """The files of an engine's jobs, by whichever `way` leads to them now; see `JobFiles`."""

    def __init__(self, way: JobFiles) -> None:
        self.way = way

    def open(self, job: int, *parts: str) -> int:
        """Return a descriptor to read a regular file; see `JobFiles.open`."""
        return self.way.open(job, *parts)

    def list(self, job: int, *parts: str) -> list[FileEntry]:
        """Return the regular files in a folder; see `JobFiles.list`."""
        return self.way.list(job, *parts)

    def newest(self, job: int, *parts: str) -> float | None:
        """Return when a file in and below a folder was last written; see `JobFiles.newest`."""
        return self.way.newest(job, *parts)

    def remove(self, job: int) -> None:
        """Delete the job's folder; see `JobFiles.remove`."""
        self.way.remove(job)


def _reply(connection: socket.socket) -> tuple[Any, tuple[int, ...]]:
    """The first result, events passed over, and the descriptors that came on the way to it."""
    lines = Lines()
    descriptors: list[int] = []
    try:
        while True:
            data, passed, _, _ = socket.recv_fds(connection, _READ, 1, socket.MSG_CMSG_CLOEXEC)
            descriptors += passed
            if not data:
                raise ConnectionError
            for message in lines.feed(data):
                if "error" in message:
                    raise EngineError(message["error"])
                if "id" in message:
                    return message["result"], tuple(descriptors)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _in_time(infos: Iterator[os.stat_result]) -> Iterator[os.stat_result]:
    """Pass on what is found, for `LONGEST_S` at most.

    Raises
    ------
    EngineError
        There is more than can be looked at.
    """
    give_up = time.monotonic() + LONGEST_S
    for number, info in enumerate(infos, 1):
        yield info
        if number % LOOKS == 0 and time.monotonic() > give_up:
            raise EngineError(f"A job's folder has more than {number:,} files: too many to find the newest.")


def _all_below(folder: int, levels: int) -> Iterator[os.stat_result]:
    """What is in a folder and in those below it, at most `levels` deep; no link is followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # it has just gone, or is not for us
                info = entry.stat(follow_symlinks=False)
                yield info
                if stat.S_ISDIR(info.st_mode) and levels > 1:
                    inner = _open_inner(folder, entry.name)
                    try:
                        yield from _all_below(inner, levels - 1)
                    finally:
                        os.close(inner)


def _counts(info: os.stat_result, owners: set[int] | None) -> bool:
    """Whether it is a regular file of one of `owners`."""
    return stat.S_ISREG(info.st_mode) and (owners is None or info.st_uid in owners)


@contextmanager
def open_folder(root: Path, *parts: str) -> Iterator[int]:
    """Open the folder `parts` below `root`, following no link on the way.

    Raises
    ------
    NoSuchFileError
        A part is not a plain name.
    OSError
        It is missing, or no folder.
    """
    within = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            inner = _open_inner(within, part)
            os.close(within)
            within = inner
        yield within
    finally:
        os.close(within)


def _open_inner(within: int, part: str) -> int:
    return os.open(_plain(part), _WITHOUT_LINKS | os.O_DIRECTORY, dir_fd=within)


def _plain(part: str) -> bytes:
    """`part` as the name of a file."""
    try:
        name = os.fsencode(part)
    except UnicodeEncodeError as error:
        raise NoSuchFileError from error
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise NoSuchFileError
    return name
