"""The launcher's hand in the files of jobs, for a service that may not read them.

Owns: opening, listing and removing below the folder of jobs. A process of its own looks at a large folder,
and one deletes it once it has been renamed, so that nobody waits for that. Never: a path outside the jobs'.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_gpupool.engines.base import EngineError, NoSuchFileError
from jupyter_gpupool.engines.local.files import DirectFiles
from jupyter_gpupool.engines.local.forks import close_all_but, never_return
from jupyter_gpupool.engines.local.peers import Passed
from jupyter_gpupool.engines.local.protocol import encode

_REMOVED = ".removed"


class Broker:
    """The files of the jobs below `jobs`."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs
        self._files = DirectFiles(jobs)

    def open(self, job: int, parts: list[str]) -> Passed | None:
        """A descriptor of a regular file, to be passed on; None where there is no such file."""
        with suppress(NoSuchFileError):
            return Passed(self._files.open(job, *parts))
        return None

    def newest(self, job: int, parts: list[str]) -> Passed:
        """A socket on which is said when a file in a folder, or below it, was last written.

        Raises
        ------
        EngineError
            The machine has no process or memory left.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                pid = os.fork()
            except OSError as error:
                raise EngineError(f"No process can be made to look at files: {error.strerror}.") from None
            if pid == 0:
                never_return(lambda: self._say_newest(theirs, job, parts))
            return Passed(ours.detach())

    def _say_newest(self, asker: socket.socket, job: int, parts: list[str]) -> None:
        close_all_but(asker.fileno())
        try:
            answer: dict[str, Any] = {"result": self._files.newest(job, *parts)}
        except EngineError as error:
            answer = {"error": str(error)}
        with suppress(BrokenPipeError):
            asker.sendall(encode({"id": 0, **answer}))

    def list(self, job: int, parts: list[str]) -> list[list[Any]]:
        """Name, size and time of each regular file in a folder."""
        return [[file.name, file.size, file.modified] for file in self._files.list(job, *parts)]

    def remove(self, job: int) -> None:
        """Have the job's folder deleted; its name is free when this returns."""
        removed = self._jobs / _REMOVED
        with suppress(FileNotFoundError):
            removed.mkdir(mode=0o700, exist_ok=True)
            out_of_sight = removed / f"{job}.{time.time_ns()}"
            (self._jobs / str(job)).rename(out_of_sight)
            _delete(out_of_sight)

    def recover(self) -> None:
        """Go on deleting what an earlier launcher had begun to delete."""
        with suppress(FileNotFoundError):
            for folder in (self._jobs / _REMOVED).iterdir():
                _delete(folder)


def _delete(folder: Path) -> None:
    """Start a process that deletes `folder`; the launcher reaps it with its runners."""
    os.posix_spawnp(
        "rm", ["rm", "-rf", "--one-file-system", "--", str(folder)], {"PATH": os.defpath, "LC_ALL": "C"}
    )
