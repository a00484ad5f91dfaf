"""Whether cells run in the kernels of sessions, as their Jupyter servers say.

Owns: the last word of each server, and for how long it holds. Never: a Hub's `last_activity`; an open browser
is no work.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpupool.ledger.records import SessionRecord

HOLDS_S = 180
"""A server that has said nothing for so long may be gone: what its kernels do is not known then."""
MOST_SERVERS = 100
"""Of one user's servers; who names more loses the word of the one that has said nothing for longest."""


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
        self._words: dict[str, dict[str | None, _Word]] = {}

    def report(self, user: str, server: str | None, kernels: tuple[Kernel, ...], now: int) -> None:
        """Take a server's word; `server` is its name on the Hub, None where there is no Hub."""
        others = [(name, word) for name, word in self._fresh(user, now).items() if name != server]
        kept = sorted(others, key=lambda said: said[1].at)[1 - MOST_SERVERS :]
        self._words[user] = {**dict(kept), server: _Word(now, kernels)}

    def busy(self, session: SessionRecord, now: int) -> bool | None:
        """Whether a cell runs in a session: in any of a server's kernels, or in its one; None = unknown."""
        words = self._fresh(session.owner, now)
        if session.server is not None:
            word = words.get(session.server.partition("/")[2])
            return any(kernel.busy for kernel in word.kernels) if word else None
        own = [
            kernel.busy
            for word in words.values()
            for kernel in word.kernels
            if kernel.pid is not None and kernel.pid == session.pid
        ]
        return any(own) if own else None

    def _fresh(self, user: str, now: int) -> dict[str | None, _Word]:
        words = self._words.get(user, {})
        return {server: word for server, word in words.items() if now - word.at <= HOLDS_S}
