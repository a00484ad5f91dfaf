"""What happened in a simulation, event by event: enough for anyone to check every figure.

Owns: the form of the events and of the file (JSON Lines, the pool first). Times are seconds after the start.
Never: a figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jupyter_gpupool.frame import Frame
from jupyter_gpupool.scheduler.model import Lease, Placement, Request, Seconds, Work

Event = dict[str, Any]


class Journal:
    """The events of one simulation, in order of time."""

    def __init__(self, start: Seconds) -> None:
        self.start = start
        self.events: list[Event] = []

    def submit(self, t: Seconds, work: Work, duration: Seconds, eligible: Seconds | None) -> None:
        """Note a submission.

        Parameters
        ----------
        duration
            The work to be done, in seconds; the scheduler does not know it.
        eligible
            When back-off and window first allow a start, UTC.
        """
        self._note(
            t,
            "submit",
            work,
            request=_request(work.request),
            limit_s=work.limit,
            duration_s=duration,
            eligible_t=None if eligible is None else eligible - self.start,
        )

    def promise(self, t: Seconds, work: Work, start: Seconds, cause: str | None) -> None:
        """Note a promise that is new or has moved; one that has moved later has a cause."""
        self._note(t, "promise", work, start_t=start - self.start, cause=cause)

    def estimate(self, t: Seconds, work: Work, start: Seconds) -> None:
        """Note the start that a plan of the moment of submission expects."""
        self._note(t, "estimate", work, start_t=start - self.start)

    def begin(self, t: Seconds, work: Work, placement: Placement, *, lent: bool) -> None:
        """Note that work has its lease."""
        gpus = [{"gpu": share.uuid, "memory_mib": share.mib} for share in placement.gpus]
        self._note(t, "start", work, gpus=gpus, partition=placement.partition, borrowed=False, lent=lent)

    def end(self, t: Seconds, work: Work | Lease, outcome: str) -> None:
        """Note that work is over, and its lease, if it had one, free."""
        self._note(t, "end", work, outcome=outcome)

    def _note(self, now: Seconds, name: str, work: Work | Lease, **more: Any) -> None:
        event = {
            "t": now - self.start,
            "event": name,
            "kind": work.kind,
            "id": work.id,
            "user": work.user,
            "group": work.group,
            **more,
        }
        self.events.append(event)


def pool_line(
    frame: Frame, start: Seconds, horizon: Seconds, policy: str, windows: dict[str, list[list[int]]]
) -> Event:
    """Return the first line: the cards, the time span and the policy's name and windows."""
    return {
        "event": "pool",
        "start": datetime.fromtimestamp(start, UTC).isoformat(),
        "horizon_s": horizon,
        "gpus": [
            {"gpu": gpu.uuid, "node": gpu.node, "memory_mib": gpu.memory_mib, "partition": gpu.partition}
            for gpu in frame.gpus
        ],
        "policy": policy,
        "windows": windows,
    }


def write_events(path: Path, pool: Event, events: Iterable[Event]) -> None:
    """Write JSON Lines."""
    with path.open("w", encoding="utf-8") as file:
        for event in (pool, *events):
            file.write(json.dumps(event, separators=(",", ":")) + "\n")


def _request(request: Request) -> Event:
    return {
        "gpus": request.gpus,
        "memory_mib": request.gpu_mib,
        "cpus_milli": request.cpus_milli,
        "host_memory_mib": request.memory_mib,
        "partition": request.partition,
    }
