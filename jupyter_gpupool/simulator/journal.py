"""What happened in a simulation, event by event: enough for anyone to check every figure.

Owns: the form of the events and of the file (JSON Lines, the pool first). Times are seconds after the start.
Never: a figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jupyter_gpupool.frame import Frame
from jupyter_gpupool.policy.calendar import windows
from jupyter_gpupool.policy.model import Policy
from jupyter_gpupool.scheduler.model import Lease, Request, Seconds, Start, Stop, Work
from jupyter_gpupool.simulator.workload import Task

Event = dict[str, Any]
AROUND_S = 7 * 86400


class Journal:
    """The events of one simulation, in order of time."""

    def __init__(self, start: Seconds) -> None:
        self.start = start
        self.events: list[Event] = []
        self._policies: list[tuple[Event, Policy]] = []

    def submit(self, t: Seconds, work: Work, task: Task, eligible: Seconds | None) -> None:
        """Note a submission; its window first allows a start at `eligible`, UTC.

        The scheduler does not know the `duration_s` of a task, the work to be done.
        """
        self._note(
            t,
            "submit",
            work,
            request=_request(work.request),
            limit_s=task.limit,
            duration_s=task.duration,
            priority=work.priority,
            resumable=work.resumable,
            grace_s=work.grace,
            window=work.window,
            eligible_t=self._since(eligible),
        )

    def promise(self, t: Seconds, work: Work, start: Seconds, cause: str | None) -> None:
        """Note a promise that is new or has moved; one that has moved later has a cause."""
        self._note(t, "promise", work, start_t=start - self.start, cause=cause)

    def estimate(self, t: Seconds, work: Work, start: Seconds) -> None:
        """Note the start that a plan of the moment of submission expects."""
        self._note(t, "estimate", work, start_t=start - self.start)

    def begin(self, t: Seconds, work: Work, start: Start, *, lent: bool) -> None:
        """Note that work has its lease."""
        placement = start.placement
        gpus = [{"gpu": share.uuid, "memory_mib": share.mib} for share in placement.gpus]
        partition, borrowed = placement.partition, start.borrowed
        self._note(t, "start", work, gpus=gpus, partition=partition, borrowed=borrowed, lent=lent)

    def resume(self, t: Seconds, work: Work, done: Seconds) -> None:
        """Note, after its start, that a job goes on where it was: with so many seconds of work done."""
        self._note(t, "resume", work, done_s=done)

    def stop_asked(self, t: Seconds, lease: Lease, stop: Stop) -> None:
        """Note that a job is asked to stop for others; it has its grace from now."""
        self._note(t, "stop_asked", lease, cause=stop.cause, taker=stop.taker)

    def end(self, t: Seconds, work: Work | Lease, outcome: str, eligible: Seconds | None = None) -> None:
        """Note that work is over and its lease, if it had one, free; stopped work may start at `eligible`."""
        more = {} if eligible is None else {"eligible_t": self._since(eligible)}
        self._note(t, "end", work, outcome=outcome, **more)

    def policy(self, t: Seconds, policy: Policy) -> None:
        """Note that another policy holds from now on."""
        event = {"t": t - self.start, "event": "policy", "policy": as_data(policy)}
        self.events.append(event)
        self._policies.append((event, policy))

    def nodes(self, t: Seconds, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Note which nodes take no new work from now on, and which take work again."""
        for node in sorted(before.keys() ^ after.keys()):
            event = {"node": node, "available": node in before, "because": after.get(node, "")}
            self.events.append({"t": t - self.start, "event": "node", **event})

    def close(self, end: Seconds) -> None:
        """Add to what was noted of policies their windows until the end."""
        for event, policy in self._policies:
            event["windows"] = _windows(policy, self.start, end)

    def _since(self, time: Seconds | None) -> Seconds | None:
        return None if time is None else time - self.start

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


def pool_line(frame: Frame, policy: Policy, start: Seconds, horizon: Seconds) -> Event:
    """Return the first line: cards, time span, policy and its windows."""
    return {
        "event": "pool",
        "start": datetime.fromtimestamp(start, UTC).isoformat(),
        "horizon_s": horizon,
        "gpus": [
            {"gpu": gpu.uuid, "node": gpu.node, "memory_mib": gpu.memory_mib, "partition": gpu.partition}
            for gpu in frame.gpus
        ],
        "policy": as_data(policy),
        "windows": _windows(policy, start, start + horizon),
    }


def as_data(policy: Policy) -> Event:
    """Return a policy as its file writes it, with all defaults but without addresses."""
    data: Event = policy.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"notify"})
    return data


def write_events(path: Path, pool: Event, events: Iterable[Event]) -> None:
    """Write JSON Lines."""
    with path.open("w", encoding="utf-8") as file:
        for event in (pool, *events):
            file.write(json.dumps(event, separators=(",", ":")) + "\n")


def _windows(policy: Policy, start: Seconds, end: Seconds) -> dict[str, list[list[Seconds]]]:
    """Return a policy's windows, with those of a week on both sides, in seconds after the start."""
    first, last = start - AROUND_S, end + AROUND_S
    return {
        name: [[t0 - start, t1 - start] for t0, t1 in windows(found, policy.zone, first, last)]
        for name, found in policy.calendars.items()
    }


def _request(request: Request) -> Event:
    return {
        "gpus": request.gpus,
        "memory_mib": request.gpu_mib,
        "cpus_milli": request.cpus_milli,
        "host_memory_mib": request.memory_mib,
        "partition": request.partition,
    }
