"""What was asked of a pool, read beside the service that writes its ledger.

Owns: opening the file without being its writer, and which work it tells of. Never: a change.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpupool.ledger.errors import LedgerUnavailable
from jupyter_gpupool.scheduler.model import Kind, Seconds

_JOBS = """
select jobs.owner, jobs."group", jobs.submitted, jobs.limit_s, jobs.request, jobs.priority, jobs.resumable,
  jobs.window, (select sum(leases.freed - leases.start) from leases where leases.work = jobs.id) as ran
from jobs where jobs.ended is not null and jobs.submitted >= :since and jobs.submitted < :until
"""
_SESSIONS = """
select owner, "group", submitted, limit_s, request, priority, 0 as resumable, null as window,
  ended - submitted as ran
from sessions where ended is not null and started is not null and submitted >= :since and submitted < :until
"""


@dataclass(frozen=True)
class Asked:
    """One job or session that is over.

    `took` is how long a job was on its cards, in all its runs, or how long a session's person was there,
    from asking to leaving. `gpu_mib` is a part of one card.
    """

    kind: Kind
    user: str
    group: str
    submitted: Seconds
    took: Seconds
    limit: Seconds
    gpus: int
    gpu_mib: int
    priority: str
    resumable: bool
    window: str | None


def asked_between(path: Path, since: Seconds, until: Seconds) -> list[Asked]:
    """Return what was submitted in [since, until), has run and is over, by time of submission.

    Raises
    ------
    LedgerUnavailable
        There is no ledger that can be read.
    """
    if not path.exists():
        raise LedgerUnavailable(
            f"There is no ledger {path}: set GPUPOOL_HOME to the folder of the pool that is meant."
        )
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            span = {"since": since, "until": until}
            found = [*_read(connection, "job", _JOBS, span), *_read(connection, "session", _SESSIONS, span)]
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"The ledger {path} cannot be read ({error}).") from None
    return sorted(found, key=lambda asked: asked.submitted)


def _read(connection: sqlite3.Connection, kind: Kind, query: str, span: dict[str, Any]) -> Iterator[Asked]:
    for row in connection.execute(query, span):
        if row["ran"] and row["ran"] > 0:
            request = json.loads(row["request"])
            yield Asked(
                kind=kind,
                user=row["owner"],
                group=row["group"],
                submitted=row["submitted"],
                took=row["ran"],
                limit=row["limit_s"],
                gpus=request.get("gpus", 0),
                gpu_mib=request.get("gpu_mib", 0),
                priority=row["priority"],
                resumable=bool(row["resumable"]),
                window=row["window"],
            )
