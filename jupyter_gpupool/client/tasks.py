"""Arrays and their tasks in words.

Owns: what a job, an array or a task is called, and how the tasks of an array stand. Never: a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

from jupyter_gpupool.client.text import plural

Json = Mapping[str, Any]
JobName = Union[int, str]
"""What people call a job: its number, or ``12[3]`` for task 3 of array 12."""

_WORDS = {"queued": "waiting", "timed_out": "timed out"}
_ORDER = (
    "running",
    "starting",
    "stopping",
    "queued",
    "held",
    "completed",
    "failed",
    "timed_out",
    "cancelled",
)


def label(job: Json) -> str:
    """Return the name of a job, an array or a task, as verbs take it."""
    if job.get("array_index") is None:
        return str(job["id"])
    return f"{job['array_id']}[{job['array_index']}]"


def title(job: Json) -> str:
    """Return what a job, an array or a task is called at the beginning of a sentence."""
    if job.get("array"):
        return f"Array {job['id']}"
    return f"{'Job' if job.get('array_index') is None else 'Task'} {label(job)}"


def is_job(job: Json) -> bool:
    """Tell whether this is one job: no array, nor a task that waits behind others and is none yet."""
    return not job.get("array") and job["id"] != job.get("array_id")


def names(event: Json) -> set[JobName]:
    """Return all names of the job that an event is about: its own, its array's, and that of the task."""
    array = event.get("array")
    own: set[JobName] = {event["job"]}
    return own if array is None else {*own, array, f"{array}[{event.get('index')}]"}


def tasks_text(array: Json) -> str:
    """Say which tasks an array has: ``100 tasks: 0-99, at most 8 at once``."""
    at_once = f", at most {array['limit']} at once" if array["limit"] is not None else ""
    return f"{plural(array['count'], 'task')}: {array['tasks']}{at_once}"


def states_text(array: Json, shown: str = "") -> str:
    """Say how the tasks of an array stand: ``8 running, 90 waiting, 2 completed``.

    Where a state is `shown` already, its tasks come first: ``8 of 100 tasks, 90 waiting, 2 completed``.
    """
    states = array["states"]
    parts = [f"{states[shown]:,} of {plural(array['count'], 'task')}"] if states.get(shown) else []
    parts += [
        f"{states[name]:,} {_WORDS.get(name, name)}" for name in _ORDER if states.get(name) and name != shown
    ]
    return ", ".join(parts)


def after_text(job: Json) -> str:
    """Say what a job comes after: ``12, 15; the end of 9``."""
    ends = ", ".join(map(str, job.get("after_any") or ()))
    parts = [", ".join(map(str, job.get("after") or ())), f"the end of {ends}" if ends else ""]
    return "; ".join(part for part in parts if part)


def numbers(tasks: str) -> list[int]:
    """Return the numbers that an array's ``tasks`` stand for.

    >>> numbers("0-2,10-30:10,35")
    [0, 1, 2, 10, 20, 30, 35]
    """
    found: list[int] = []
    for part in tasks.split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found
