"""Whether cells run in the kernels of sessions, as their Jupyter servers say.

Owns: the last word of each server, and for how long it holds. Never: a Hub's `last_activity`; an open browser
is no work.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpupool.ledger.records import SessionRecord

HOLDS_S = 180
"""A server that has said nothing for so long may be gone: what its kernels do is not known then."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's process, and whether it runs a cell."""

    pid: int | None
    busy: bool


@dataclass(frozen=True, slots=True)
class _Word:
    at: int
    kernels: tuple[Kernel, ...]


class Activity:
    """What all servers have said."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, str | None], _Word] = {}

    def report(self, user: str, server: str | None, kernels: tuple[Kernel, ...], now: int) -> None:
        """Take a server's word; `server` is its name on the Hub, None where there is no Hub."""
        old = [key for key, word in self._words.items() if now - word.at > HOLDS_S]
        for key in old:
            del self._words[key]
        self._words[user, server] = _Word(now, kernels)

    def busy(self, session: SessionRecord, now: int) -> bool | None:
        """Whether a cell runs in a session: in any of a server's kernels, or in its one; None = unknown."""
        if session.server is not None:
            word = self._words.get((session.owner, session.server.partition("/")[2]))
            fresh = word is not None and now - word.at <= HOLDS_S
            return any(kernel.busy for kernel in word.kernels) if word and fresh else None
        own = [
            kernel.busy
            for (user, _), word in self._words.items()
            if user == session.owner and now - word.at <= HOLDS_S
            for kernel in word.kernels
            if kernel.pid is not None and kernel.pid == session.pid
        ]
        return any(own) if own else None
