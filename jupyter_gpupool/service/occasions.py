"""What people are told of their jobs, sessions and requests, and of what.

Owns: which occasions make a message, and its words. Pure. A subject may be read by more people than its
owner: it says nothing of a job's output. Never: an address, a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jupyter_gpupool.client.text import duration, plain, plural, sentence
from jupyter_gpupool.ledger.grant_records import RequestRecord, RequestState
from jupyter_gpupool.ledger.outbox import Message
from jupyter_gpupool.ledger.records import Job, JobState, SessionRecord
from jupyter_gpupool.policy.model import Occasion, Policy

BAD = (JobState.FAILED, JobState.TIMED_OUT)
_SHOWN = 20


def wanted(job: Job, policy: Policy) -> Collection[Occasion | str]:
    """Return the occasions that the owner of a job wants to hear of: as the job, else the user, else all."""
    own = policy.users[job.owner].notify if job.owner in policy.users else None
    return job.notify or (policy.notify.events if own is None else own)


def of_job(job: Job, policy: Policy) -> Message | None:
    """Return what is to be told now that a job, which is no task of an array, is in its state."""
    events = wanted(job, policy)
    if job.state.ended and ("end" in events or ("fail" in events and job.state in BAD)):
        return Message(f"job {job.id} end", job.owner, f"{_name(job, policy)} {_ended(job)}", _end_text(job))
    if job.state is JobState.RUNNING and "start" in events:
        text = f"It may run for {duration(job.limit_s)}.\n\n{_look(job.id)}"
        return Message(f"job {job.id} start {job.attempt}", job.owner, f"{_name(job, policy)} runs", text)
    if job.state.waiting and job.attempt and "stop" in events:
        how = "is held" if job.state is JobState.HELD else "was stopped and waits to run again"
        because = job.held or job.reason
        key = f"job {job.id} stop {job.attempt}"
        return Message(key, job.owner, f"{_name(job, policy)} {how}", f"{because}\n\n{_look(job.id)}")
    return None


def of_array(
    array: int, job: Job, counts: Mapping[JobState, int], failed: Collection[str], policy: Policy
) -> Message | None:
    """Return the one message about an array, now that `job`, a task of it, is in its state.

    Parameters
    ----------
    counts
        How many of its tasks are in each state.
    failed
        The numbers of the tasks that came to a bad end.
    """
    events = wanted(job, policy)
    there = {state: count for state, count in counts.items() if count}
    bad = sum(there.get(state, 0) for state in BAD)
    if all(state.ended for state in there) and ("end" in events or ("fail" in events and bad)):
        said = ", ".join(f"{count:,} {state.value.replace('_', ' ')}" for state, count in there.items())
        subject = f"Array {array}{_named(job, policy)} has ended: {said}"
        return Message(f"array {array} end", job.owner, subject, _array_text(array, failed))
    if job.state is JobState.RUNNING and "start" in events:
        subject = f"Array {array}{_named(job, policy)} has begun"
        text = f"Its first task runs; the array has {plural(sum(there.values()), 'task')}.\n\n{_look(array)}"
        return Message(f"array {array} start", job.owner, subject, text)
    return None


def of_session(session: SessionRecord, key: str, subject: str, text: str) -> Message:
    """Return a message to the owner of a session."""
    return Message(f"session {session.id} {key}", session.owner, subject, text)


def of_request(record: RequestRecord, asks: str, managers: Collection[str]) -> list[Message]:
    """Return what is to be told of a request: to those who may answer, else of the answer to who asked.

    Parameters
    ----------
    asks
        What is asked for, in words.
    managers
        Who may answer; with none, the administrators are told.
    """
    if record.state is RequestState.OPEN:
        subject = f"Request {record.id} waits for an answer"
        how = f"jupyter gpupool approve {record.id} SENTENCE, or deny"
        text = f"{record.user} asks for {asks}. {record.because}\n\nAnswer with: {how}"
        others: list[str | None] = [*sorted(set(managers) - {record.user})]
        return [
            Message(f"request {record.id} for {name or 'administrators'}", name, subject, text)
            for name in others or [None]
        ]
    if record.state is RequestState.WITHDRAWN or record.by == record.user:
        return []
    text = f"You asked for {asks}. {sentence(record.answer)} ({record.by})"
    subject = f"Request {record.id} is {record.state.value}"
    return [Message(f"request {record.id} answered", record.user, subject, text)]


def _named(job: Job, policy: Policy) -> str:
    """Return a job's name where others may see it, else its group; a subject may be read by all."""
    return (
        f" ({plain(' '.join(job.name.split()))})" if policy.visibility == "names" else f" (group {job.group})"
    )


def _name(job: Job, policy: Policy) -> str:
    return f"Job {job.id}{_named(job, policy)}"


def _ended(job: Job) -> str:
    took = "" if job.started is None or job.ended is None else f" after {duration(job.ended - job.started)}"
    return {
        JobState.COMPLETED: f"has completed{took}",
        JobState.FAILED: f"has failed{took}",
        JobState.TIMED_OUT: f"was ended at its time limit, {duration(job.limit_s)}",
        JobState.CANCELLED: "was cancelled",
    }[job.state]


def _end_text(job: Job) -> str:
    diagnosis = job.diagnosis or {}
    lines = [job.reason, diagnosis.get("summary", ""), diagnosis.get("hint", "")]
    said = [line for number, line in enumerate(lines) if line and line not in lines[:number]]
    return "\n".join([*said, "", f"What it printed: jupyter gpupool logs {job.id}", _look(job.id)])


def _array_text(array: int, failed: Collection[str]) -> str:
    if not failed:
        return _look(array)
    some = ", ".join(list(failed)[:_SHOWN])
    more = f" and {len(failed) - _SHOWN:,} more" if len(failed) > _SHOWN else ""
    return f"Tasks that came to a bad end: {some}{more}.\n\n{_look(array)}"


def _look(number: int) -> str:
    return f"More: jupyter gpupool why {number}"
