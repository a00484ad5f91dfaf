"""Jobs that come after others.

Owns: what a submit may come after, and what becomes of work whose turn can no longer come: it is cancelled
with the reason, and so is what comes after it. Never: who is next.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpupool.ledger.records import Job, JobState
from jupyter_gpupool.ledger.store import Ledger
from jupyter_gpupool.service.errors import ApiError, invalid
from jupyter_gpupool.service.naming import LIST, Named, Unborn, capital, in_words, named
from jupyter_gpupool.service.news import News

FATES = {
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.TIMED_OUT: "ran into its time limit",
}


def befores(names: Iterable[int | str], ledger: Ledger, owner: str, *, completed: bool) -> list[Named]:
    """Return what a new job comes after.

    It can name only what is there already, so that no two ever wait for each other.

    Parameters
    ----------
    completed
        Whether it waits until they have completed, not only ended.

    Raises
    ------
    ApiError
        One does not exist, is another user's, or will never complete.
    """
    found = []
    for name in names:
        before = _named(ledger, str(name).strip().lstrip("#"))
        whose = before.array.owner if isinstance(before, Unborn) else before.owner
        if whose != owner:
            raise invalid(
                f"{capital(in_words(before))} is not yours: a job can only come after jobs of its own user.",
                LIST,
            )
        if completed and (fate := fate_of(before, ledger)):
            raise invalid(
                f"{capital(in_words(before))} {fate}, so what comes after it would never start.",
                "Submit it without --after, or with --after-any, which takes every end.",
            )
        found.append(before)
    return found


def numbers_now(befores: Iterable[Named]) -> tuple[int, ...]:
    """Return the numbers of what a job would come after; a task that is no job yet goes by its array's."""
    return _once(before.array.id if isinstance(before, Unborn) else before.id for before in befores)


def numbers(befores: Iterable[Named], ledger: Ledger, now: int) -> tuple[int, ...]:
    """Return the numbers of what a job comes after; a task that is no job yet becomes one, if it ever will.

    Raises
    ------
    LedgerUnavailable
        It cannot be written down.
    """
    return _once(
        ledger.arrays.task(before.array.id, before.index, now).id if isinstance(before, Unborn) else before.id
        for before in befores
        if not (isinstance(before, Unborn) and before.array.cancelled)
    )


def _once(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))


def _named(ledger: Ledger, name: str) -> Named:
    try:
        return named(ledger, name)
    except ApiError as error:
        raise invalid(error.message, error.hint) from None


def fate_of(before: Named, ledger: Ledger) -> str:
    """Say what has become of a job or array that will never complete; empty of one that may."""
    if isinstance(before, Unborn):
        return FATES[JobState.CANCELLED] if before.array.cancelled else ""
    if isinstance(before, Job):
        return FATES.get(before.state, "")
    fallen = next((job for job in ledger.arrays.jobs(before.id) if job.state in FATES), None)
    if fallen is None:
        return FATES[JobState.CANCELLED] if before.cancelled and before.rest else ""
    return f"will not complete, because its task {fallen.index} {FATES[fallen.state]}"


def cancel_broken(ledger: Ledger, news: News, now: int) -> None:
    """Cancel what waits for something that will never complete, and what comes after that.

    Raises
    ------
    LedgerUnavailable
        It cannot be written down; what is left is cancelled the next time.
    """
    while broken := sorted(ledger.dependencies.doomed):
        job = ledger.jobs[broken[0]]
        before = ledger.dependencies.broken(job)
        assert before is not None, "what is doomed comes after something"
        found = ledger.arrays.records.get(before) or ledger.jobs[before]
        reason = f"Cancelled: it comes after {in_words(found)}, which {fate_of(found, ledger)}."
        if job.array is None:
            news.job(ledger.cancel_queued(job.id, reason, now))
        else:
            for task in ledger.arrays.cancel(job.array, reason, now):
                news.job(task)
