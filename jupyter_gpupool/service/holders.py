"""The first process of each lease, as far as it lives.

Owns: finding them, for those who ask whose a process on a card is. Never: what follows from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_gpupool.devices.strangers import Holder, holder_of
from jupyter_gpupool.engines.base import Started
from jupyter_gpupool.ledger.records import SessionState
from jupyter_gpupool.ledger.store import Ledger


def holders(ledger: Ledger, runners: Iterable[Started]) -> Iterator[Holder]:
    """Yield the holder of each lease; `runners` is what the engine runs."""
    pids: list[tuple[int, int, str | None]] = []
    for runner in runners:
        id = int(runner.key.partition("/")[0])
        work = ledger.jobs.get(id) or ledger.sessions.get(id)
        if work and work.lease is not None:
            pids.append((work.lease, runner.pid, runner.cgroup))
    pids += [
        (session.lease, session.pid, None)
        for session in list(ledger.sessions.values())
        if session.state is SessionState.HELD and session.lease is not None and session.pid
    ]
    for lease, pid, cgroup in pids:
        try:
            yield holder_of(lease, pid, cgroup=cgroup)
        except (FileNotFoundError, ProcessLookupError):
            continue
