"""Leaving whoever started the service.

Owns: the double fork, the streams, and telling the caller whether the service came up. Never: what the
service does.
"""

from __future__ import annotations

import os
from pathlib import Path

READY = b"ready"


class Caller:
    """The process that waits to hear whether the service answers."""

    def __init__(self, pipe: int, log: Path):
        self._pipe = pipe
        self._log = log

    def tell_ready(self) -> None:
        """Say that the service answers, and let go of the caller's streams."""
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        os.write(self._pipe, READY)
        os.close(self._pipe)


def detach(log: Path) -> Caller | int:
    """Go on in a new process, outside the caller's session and terminal.

    Returns
    -------
    Caller or int
        In the new process, whom to tell. In the calling process, an exit code: 0 once the service answers;
        1 when it ended before, having said why on standard error.
    """
    heard, said = os.pipe()
    child = os.fork()
    if child:
        os.close(said)
        os.waitpid(child, 0)
        answer = os.read(heard, len(READY))
        os.close(heard)
        return 0 if answer == READY else 1
    os.close(heard)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return Caller(said, log)
