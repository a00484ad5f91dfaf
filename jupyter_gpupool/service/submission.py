"""From what somebody typed to what the ledger keeps: sizes, defaults, groups, rules of the policy.

Owns: the meaning of a request's values and their defaults. Pure functions of request, user, policy and
frame. Never: whether there is room now; that is the scheduler's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jupyter_gpupool.frame import Frame
from jupyter_gpupool.ledger.records import NewJob, NewSession
from jupyter_gpupool.policy import sizes, units
from jupyter_gpupool.policy.membership import NotAMember, choose_group
from jupyter_gpupool.policy.model import NORMAL, ROOT, Policy, Slice
from jupyter_gpupool.policy.ranges import parse_array
from jupyter_gpupool.scheduler.model import Gpu, Kind, Request, UserLimits, Work
from jupyter_gpupool.service.errors import ApiError, invalid, nearest
from jupyter_gpupool.service.identity import Identity
from jupyter_gpupool.service.wire import ENTRIES, JobRequest, LeaseRequest, Resources, Typed, check

WITH_PAYLOAD = ("cell", "notebook", "function")
"""Kinds whose code exists only in the snapshot."""
MOST_RETRIES = 100
NO_GROUP = "You are in no group of the policy, so you can use CPUs only."


@dataclass(frozen=True, slots=True)
class Rules:
    """What a request is read against."""

    who: Identity
    policy: Policy
    frame: Frame

    def limits(self, group: str) -> UserLimits:
        """Return the user's limits in a group."""
        return limits_of(self.frame, group, self.who.user)

    def cards(self, kind: Kind, partition: str | None = None) -> list[Gpu]:
        """Return the cards that such work may use."""
        return [
            gpu
            for gpu in self.frame.gpus
            if self.frame.partitions[gpu.partition].serves(kind) and partition in (None, gpu.partition)
        ]


def limits_of(frame: Frame, group: str, user: str) -> UserLimits:
    """Return a user's limits in a group: the user's own numbers before the group's."""
    common = frame.groups[group].user if group in frame.groups else UserLimits()
    return frame.users.get(user, UserLimits()).over(common)


@contextmanager
def _units_in_words() -> Iterator[None]:
    """Refuse an amount that cannot be read, with what to write instead."""
    try:
        yield
    except units.UnitError as error:
        raise invalid(error.message, error.remedy) from None


@_units_in_words()
def new_job(body: JobRequest, rules: Rules, key: str | None) -> NewJob:
    """Return the job that a request describes.

    Raises
    ------
    ApiError
        A value is not allowed; one sentence says which, with the numbers and what to write instead.
    """
    policy = rules.policy
    entry = check(ENTRIES[body.kind], body.entry, within="entry").model_dump()
    if body.snapshot is None and body.kind in WITH_PAYLOAD:
        raise invalid(f"A {body.kind} is run from a snapshot, and the request names none.")
    if any("\0" in name + value or "=" in name or not name for name, value in body.environment.items()):
        raise invalid("A name or value of the environment holds a character that no environment can hold.")
    partition = partition_of(body.partition, rules, "job")
    request = _job_request(body.resources, rules, partition)
    group = _group(body.group, rules, request)
    limit = _limit(body.time, rules.limits(group).job_time, policy.jobs.default_time)
    return NewJob(
        owner=rules.who.user,
        group=group,
        name=body.name or _default_name(body.kind, entry),
        kind=body.kind,
        priority=priority_of(body.priority, group, policy),
        limit_s=limit,
        grace_s=_grace(body.grace, limit, policy),
        request=request,
        entry=entry,
        workdir=body.workdir or "",
        workdir_mode=body.workdir_mode if body.workdir else "snapshot",
        resumable=body.resumable,
        window=_known(body.window, policy.calendars, "window"),
        snapshot=body.snapshot,
        environment=body.environment,
        interpreter=body.interpreter.model_dump() | {"python": body.interpreter.python or sys.executable},
        provenance=body.provenance.model_dump() | {"held_back": body.held_back},
        key=key,
        notify=_occasions(body.notify),
        retries=_retries(body.retries),
    )


@_units_in_words()
def tasks_of(body: JobRequest) -> tuple[tuple[int, ...], int | None] | None:
    """Return the numbers of an array's tasks and how many run at once; None for a single job.

    Raises
    ------
    ApiError
        It cannot be read, or has too many tasks.
    """
    return None if body.array is None else parse_array(body.array)


@_units_in_words()
def more_time(asked: Typed) -> int:
    """Return by how many seconds a job is to be extended.

    Raises
    ------
    ApiError
        It is no length of time.
    """
    return units.parse_duration(asked, what="time")


@_units_in_words()
def new_session(body: LeaseRequest, rules: Rules, pid: int, starttime: int | None) -> NewSession:
    """Return the session that a request for a lease describes; it lives with process `pid`.

    Raises
    ------
    ApiError
        As `new_job`.
    """
    partition = partition_of(body.partition, rules, "session")
    request = _session_request(body, rules, partition)
    group = _group(body.group, rules, request)
    limit = _limit(body.time, rules.limits(group).session_time, rules.policy.jobs.default_time)
    return NewSession(
        owner=rules.who.user,
        group=group,
        name=body.name or "session",
        request=request,
        limit_s=limit,
        priority=priority_of(None, group, rules.policy),
        pid=pid,
        starttime=starttime,
    )


def work_of(new: NewJob | NewSession, now: int, id: int = 0) -> Work:
    """Return what the scheduler would see of work that is not in the ledger yet."""
    return Work(
        id=id,
        kind="job" if isinstance(new, NewJob) else "session",
        user=new.owner,
        group=new.group,
        priority=new.priority,
        submitted=now,
        limit=new.limit_s,
        request=new.request,
        resumable=isinstance(new, NewJob) and new.resumable,
        window=new.window if isinstance(new, NewJob) else None,
    )


def _job_request(asked: Resources, rules: Rules, partition: str | None) -> Request:
    """Return what a job needs; without a size, one whole GPU."""
    cards = rules.cards("job", partition)
    gpus, mib = _or_one_gpu(*_size(asked, cards))
    return _filled(asked, rules, cards, gpus, mib, None, partition)


def _session_request(asked: Resources, rules: Rules, partition: str | None) -> Request:
    """Return what a session gets: the smallest of its partition's slices that holds what was asked for."""
    cards = rules.cards("session", partition)
    gpus, mib = _size(asked, cards)
    least = min((card.memory_mib for card in cards), default=0)
    open_to_it = [name for name, found in rules.frame.partitions.items() if "session" in found.kinds]
    names = [partition] if partition else open_to_it
    slices = [cut for name in names for cut in rules.policy.partitions[name].slices]
    cut = sizes.smallest_that_holds(slices, gpus, mib, least)
    if cut is None:
        return _filled(asked, rules, cards, *_or_one_gpu(gpus, mib), None, partition)
    return _of_cut(cut, asked, rules, cards, partition)


def slice_request(cut: Slice, rules: Rules, partition: str | None) -> Request:
    """Return what a session with one of the policy's slices gets."""
    return _of_cut(cut, Resources(), rules, rules.cards("session", partition), partition)


def _of_cut(cut: Slice, asked: Resources, rules: Rules, cards: list[Gpu], partition: str | None) -> Request:
    least = min((card.memory_mib for card in cards), default=0)
    whole, part = (0, sizes.mib_of(cut, least)) if cut.share else (cut.gpus or 0, 0)
    return _filled(asked, rules, cards, whole, part, cut, partition)


def _size(asked: Resources, cards: list[Gpu]) -> tuple[int | None, int | None]:
    """Return the whole cards and the MiB of one card that were asked for."""
    if asked.gpu_compute is not None:
        raise invalid(
            "A share of a GPU's compute (--gpu-compute) cannot be held by the sharing modes of this pool.",
            "Leave it out; ask for memory with --gpu-memory, or for a whole GPU with --gpus 1.",
        )
    if asked.gpus is not None and asked.gpu_memory is not None:
        raise invalid(
            "--gpus and --gpu-memory exclude each other.", "Ask for whole GPUs, or for part of one."
        )
    if asked.gpu_memory is not None:
        largest = max((card.memory_mib for card in cards), default=None)
        return None, units.parse_size(
            asked.gpu_memory, what="--gpu-memory", minimum=units.MIN_SLICE_MIB, maximum=largest
        )
    return (None, None) if asked.gpus is None else (units.parse_count(asked.gpus, what="--gpus"), None)


def _or_one_gpu(gpus: int | None, mib: int | None) -> tuple[int, int]:
    """Return the size that was asked for; where none was, one whole GPU."""
    return (1, 0) if gpus is None and mib is None else (gpus or 0, mib or 0)


def _filled(
    asked: Resources,
    rules: Rules,
    cards: list[Gpu],
    gpus: int,
    mib: int,
    cut: Slice | None,
    partition: str | None,
) -> Request:
    """Return the request with the CPUs and the memory that go with its part of the cards."""
    defaults = rules.policy.defaults
    part = sizes.part_of_a_card(gpus, mib, cut, max((card.memory_mib for card in cards), default=0))
    if asked.cpus is not None:
        cpus = units.parse_cpus(asked.cpus, what="--cpus")
    else:
        cpus = sizes.cpus_beside(part, cut, defaults)
    if asked.mem is not None:
        memory = units.parse_size(asked.mem, what="--mem")
    else:
        memory = sizes.memory_beside(part, cut, cpus, defaults)
    return Request(
        gpus=gpus,
        gpu_mib=mib,
        share=cut.share if cut and mib else None,
        gpu_types=tuple(asked.gpu_type),
        cpus_milli=cpus,
        memory_mib=memory,
        partition=partition,
    )


def partition_of(asked: str | None, rules: Rules, kind: Kind) -> str | None:
    """Return the partition that was asked for, if there is such a one for this kind of work."""
    name = _known(asked, rules.frame.partitions, "partition")
    if name and not rules.frame.partitions[name].serves(kind):
        other = "sessions" if kind == "job" else "jobs"
        raise invalid(f"The partition {name} takes {other} only.", "Leave out --partition.")
    return name


def group_of(asked: str | None, rules: Rules) -> str | None:
    """Return the group that a request counts for; None for a user of no group of the policy.

    Raises
    ------
    ApiError
        The user is not in the group that was asked for.
    """
    try:
        return choose_group(rules.policy, rules.who.user, asked, rules.who.hub_groups)
    except NotAMember as error:
        raise invalid(str(error), code="not_a_member") from None


def _group(asked: str | None, rules: Rules, request: Request) -> str:
    group = group_of(asked, rules)
    if group is None and (request.gpus or request.gpu_mib):
        raise no_group("Ask an administrator to add you to a group, or submit with --gpus 0.")
    return group or ROOT


def no_group(hint: str) -> ApiError:
    """Build the refusal of a GPU to a user of no group of the policy."""
    return invalid(NO_GROUP, hint, code="no_group")


def priority_of(asked: str | None, group: str, policy: Policy) -> str:
    """Return the priority that was asked for, if the group may take it; None = the ordinary one."""
    name = _known(asked, policy.priorities, "priority")
    if name is None:
        return NORMAL if NORMAL in policy.priorities else next(iter(policy.priorities))
    allowed = policy.priorities[name].groups
    if allowed is not None and group not in allowed:
        raise invalid(
            f"The priority {name} is for {_listed(allowed)} only; this request counts for {group}.",
            "Choose another priority.",
        )
    return name


def _limit(asked: Typed, most: int | None, default: int) -> int:
    if asked is not None:
        return units.parse_duration(asked, what="--time")
    return default if most is None else min(default, most)


def _grace(asked: Typed, limit: int, policy: Policy) -> int:
    """Return the seconds between SIGTERM and the end: by default never more than half the limit."""
    if asked is None:
        return min(policy.jobs.grace, limit // 2)
    grace = units.parse_duration(asked, what="--grace", zero=True)
    most = policy.jobs.max_grace
    if grace > most:
        raise ApiError(
            422,
            "exceeds_limit",
            f"--grace {asked} is more than the policy allows: {units.format_duration(most)}.",
            used=grace,
            limit=most,
            unit="s",
            hint=f"Ask for {units.format_duration(most)} or less.",
        )
    if grace >= limit:
        raise invalid(
            f"--grace {asked} leaves nothing of the time limit of {units.format_duration(limit)}.",
            "Ask for more with --time, or for less --grace.",
        )
    return grace


def _occasions(asked: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(asked))
    if len(found) > 1 and "none" in found:
        raise invalid("--notify none stands alone.", "Leave out none, or the others.")
    return found


def _retries(asked: Typed) -> int:
    return 0 if asked is None else units.parse_count(asked, what="--retries", maximum=MOST_RETRIES)


def _known(asked: str | None, known: Mapping[str, object], what: str) -> str | None:
    if asked is None or asked in known:
        return asked
    guess = nearest(asked, known)
    hint = f"Did you mean {guess}?" if guess else f"There is {_listed(known)}." if known else "Leave it out."
    raise invalid(f'There is no {what} "{asked}".', hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _default_name(kind: str, entry: Mapping[str, Any]) -> str:
    named = entry.get("script") or entry.get("notebook") or entry.get("name")
    if named:
        return os.path.basename(str(named))
    return os.path.basename(entry["argv"][0]) if kind == "command" else kind
