"""Staying with jobs until they end: their output, and their changes.

Owns: which states are an end, and what to do when the stream breaks, the service restarts, or a job runs
again. Never: printing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from jupyter_gpupool.client.errors import PoolError
from jupyter_gpupool.client.sse import Event, parse_events
from jupyter_gpupool.client.tasks import JobName, names

if TYPE_CHECKING:
    from jupyter_gpupool.client.api import Client

Json = dict[str, Any]
T = TypeVar("T")

ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})
LOG_WAIT = 20  # seconds that the service may hold a request for a log until something comes
PAUSE = 1.0  # seconds between looks where no stream tells of changes
SILENCE = 45.0  # seconds without a heartbeat (they come every 15) after which an event stream is dead
PATIENCE = 600.0  # seconds that a Hub and its pool may be away, as when they are updated


class Overdue(TimeoutError):  # noqa: N818 - what a caller asked for, not a failure of the pool
    """The time that the caller gave has passed."""


def follow_logs(
    client: Client,
    job: JobName,
    offset: int = 0,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """Yield a job's output as it comes, run after run, until the job has ended."""

    def patiently(ask: Callable[[], T]) -> T:
        return _patiently(client, ask, clock, lambda: sleep(PAUSE))

    look = partial(client.job, job)
    attempt = patiently(look)["attempt"]
    while True:
        part = patiently(partial(client.logs, job, offset, attempt=attempt or None, wait=LOG_WAIT))
        offset = part.offset
        if part.data:
            yield part.data
            continue
        found = patiently(look)
        if found["attempt"] != attempt:
            if attempt:
                offset = 0
            attempt = found["attempt"]
        elif part.ended:
            if found["state"] in ENDED:
                return
            sleep(PAUSE)


def wait(
    client: Client,
    jobs: list[JobName],
    timeout: float | None = None,
    on_event: Callable[[Json], None] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Json]:
    """Wait until all `jobs` have ended and return them, in the order given.

    Changes come by the stream of events; whenever it cannot be had, the jobs are looked at once a second. A
    pool that its Hub's administrator restarts is waited for.

    Raises
    ------
    TimeoutError
        When `timeout` seconds have passed first.
    """
    seen: dict[JobName, Json] = {}
    deadline = None if timeout is None else clock() + timeout
    last_id = ""

    def pending() -> list[JobName]:
        return [job for job in jobs if job not in seen or seen[job]["state"] not in ENDED]

    def left() -> float:
        if deadline is None:
            return SILENCE
        if clock() >= deadline:
            left_over = ", ".join(map(str, pending()))
            raise Overdue(f"Still not ended after {timeout:g} s: {left_over}.")
        return min(SILENCE, deadline - clock())

    def pause() -> None:
        left()
        sleep(PAUSE)

    def look() -> None:
        for job in pending():
            found = _patiently(client, partial(client.job, job), clock, pause)
            if found != seen.get(job):
                seen[job] = found
                if on_event:
                    on_event(found)

    while True:
        try:
            with client.open_events(last_id, timeout=left()) as stream:
                look()  # after the stream is open, so that nothing falls between
                events = parse_events(stream.lines())
                while pending():
                    stream.set_timeout(left())
                    event = next(events, None)
                    if event is None:
                        break
                    last_id = event.id or last_id
                    if concerns(event, pending()):
                        look()
        except Overdue:
            raise
        except (OSError, PoolError):
            look()
        if not pending():
            return [seen[job] for job in jobs]
        pause()


def _patiently(
    client: Client, ask: Callable[[], T], clock: Callable[[], float], pause: Callable[[], None]
) -> T:
    """Ask again while the service is away, if it is one that somebody else brings back."""
    give_up = None
    while True:
        try:
            return ask()
        except PoolError as error:
            give_up = give_up or clock() + PATIENCE
            if not (client.connection.managed and error.is_away) or clock() >= give_up:
                raise
        pause()


def concerns(event: Event, jobs: Collection[JobName]) -> bool:
    """Tell whether an event may be about one of `jobs`."""
    if not event.name:
        return False
    if not isinstance(event.data, dict) or not isinstance(event.data.get("job"), int):
        return True
    return not names(event.data).isdisjoint(jobs)
