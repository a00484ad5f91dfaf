"""What people call a job: ``17``, of an array's tasks ``12[3]``, and of an array ``12``.

Owns: from such a name to what the ledger has, and back. Never: who may see it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from jupyter_gpupool.ledger.records import ArrayRecord, Job
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.policy.ranges import array_text
from jupyter_gpupool.service.errors import ApiError, invalid, not_found

LIST = "List yours with: jupyter gpupool jobs"
_NAME = re.compile(r"([0-9]{1,18})(?:\[([0-9]{1,9})\])?")


@dataclass(frozen=True, slots=True)
class Unborn:
    """A task of an array that is no job yet."""

    array: ArrayRecord
    index: int


Named: TypeAlias = Job | ArrayRecord | Unborn


def named(ledger: Ledger, text: str) -> Named:
    """Return what has this name.

    Raises
    ------
    ApiError
        It is no name, or nothing has it.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise invalid(f"{text!r} is no number of a job, such as 17, or of a task of an array, such as 12[3].")
    number = int(match[1])
    array = ledger.arrays.records.get(number)
    if match[2] is not None:
        return _task(ledger, number, int(match[2]))
    found = array or ledger.jobs.get(number)
    if found is None:
        raise not_found(f"job {text}", LIST)
    return found


def _task(ledger: Ledger, number: int, index: int) -> Job | Unborn:
    array = ledger.arrays.records.get(number)
    if array is None:
        what = f"task {index} of job {number}"
        raise not_found(what, f"Job {number} is no array." if number in ledger.jobs else LIST)
    if index in ledger.arrays.tasks(number):
        return ledger.jobs[ledger.arrays.tasks(number)[index]]
    if index not in array.rest:
        raise not_found(f"task {index} in array {number}", f"It has the tasks {array_text(array.tasks)}.")
    return Unborn(array, index)


def label(found: Named) -> str:
    """Return the name of a job, an array or a task."""
    if isinstance(found, Unborn):
        return f"{found.array.id}[{found.index}]"
    if isinstance(found, Job) and found.array is not None:
        return f"{found.array}[{found.index}]"
    return str(found.id)


def in_words(found: Named) -> str:
    """Return the name of a job, an array or a task with what it is."""
    if isinstance(found, ArrayRecord):
        return f"array {found.id}"
    is_task = isinstance(found, Unborn) or found.array is not None
    return f"{'task' if is_task else 'job'} {label(found)}"


def capital(text: str) -> str:
    """Return a text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def no_single_job(found: ArrayRecord | Unborn) -> ApiError:
    """Build the refusal of something that only a job has, such as a log."""
    if isinstance(found, Unborn):
        return ApiError(
            409, "conflict", f"Task {label(found)} has not run: it waits behind others of its array."
        )
    return ApiError(
        409,
        "conflict",
        f"{found.id} is an array of {len(found.tasks):,} tasks, each with a log and files of its own.",
        hint=f"Name one of them, such as {found.id}[{found.tasks[0]}].",
    )
