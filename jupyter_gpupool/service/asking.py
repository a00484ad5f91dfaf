"""What users ask managers and administrators for.

Owns: reading a request, what it says in words, and the grant that it becomes when it is approved. Never:
whether it is approved.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpupool.ledger.database import Change
from jupyter_gpupool.ledger.extension import extended
from jupyter_gpupool.ledger.grant_records import NewRequest, RequestRecord, RequestState
from jupyter_gpupool.ledger.records import Job, SessionRecord
from jupyter_gpupool.policy.units import UnitError, format_duration, parse_duration
from jupyter_gpupool.service.errors import ApiError, conflict, invalid, not_found
from jupyter_gpupool.service.grant_wire import (
    WISHES,
    AnswerRequest,
    BoostRequest,
    NewGrantRequest,
    ReservationRequest,
    TimeWish,
)
from jupyter_gpupool.service.granting import Desk, limit_to_raise, wanted
from jupyter_gpupool.service.reserving import wanted_cards
from jupyter_gpupool.service.submission import limits_of
from jupyter_gpupool.service.terms import is_duration, term
from jupyter_gpupool.service.wire import Body, check

MOST_OPEN = 20
"""How many requests of one user may wait for an answer."""


def new_request(body: NewGrantRequest, group: str, desk: Desk) -> NewRequest:
    """Return the request that somebody makes, for a group of theirs; of more time, for that of the work.

    Raises
    ------
    ApiError
        What it asks for cannot be read or granted by anybody, or too many wait for an answer already.
    IllegalTransition
        The work that is to have more time has ended.
    """
    user = desk.who.user
    waiting = [one for one in desk.ledger.grants.requests.values() if one.user == user and is_open(one)]
    if len(waiting) >= MOST_OPEN:
        raise conflict(
            f"{len(waiting)} requests of yours wait for an answer.",
            f"Wait, or take one back: jupyter gpupool requests --withdraw {waiting[0].id}",
        )
    wants = {**_for_whom(body, group, user), **body.wants}
    wish = check(WISHES[body.kind], wants, within="wants")
    _can_be_granted(body.kind, wish, desk)
    if isinstance(wish, TimeWish):
        group = _own_work(wish, desk).group
    return NewRequest(body.kind, user, group, wish.model_dump(exclude_defaults=True), body.because.strip())


def is_open(record: RequestRecord) -> bool:
    """Whether a request waits for its answer."""
    return record.state is RequestState.OPEN


def wish_of(record: RequestRecord, answer: AnswerRequest, desk: Desk) -> Body:
    """Return what an approved request becomes: a boost or reservation, or more time.

    What comes out of a quota comes out of the group that the answer names; of a reservation otherwise out of
    the group it was asked for in, if who approves manages that.
    """
    wish = check(WISHES[record.kind], dict(record.wants))
    if isinstance(wish, TimeWish):
        return wish
    out_of = answer.out_of
    if out_of is None and record.kind == "reservation" and not desk.who.admin and desk.manages(record.group):
        out_of = record.group
    return wish.model_copy(update={"out_of": out_of, "because": record.because})


def work_of(number: int, desk: Desk) -> Job | SessionRecord:
    """Return a job or session.

    Raises
    ------
    ApiError
        There is none of this number.
    """
    found = desk.ledger.jobs.get(number) or desk.ledger.sessions.get(number)
    if found is None:
        raise not_found(f"job or lease {number}", "See: jupyter gpupool jobs")
    return found


def more_time(wish: TimeWish, record: RequestRecord, desk: Desk) -> Change:
    """Return the change by which work may go on longer; a manager keeps to what the policy allows one piece.

    Raises
    ------
    ApiError
        It would be longer than the policy allows.
    """
    work, more = work_of(wish.work, desk), _seconds(wish)
    limits = limits_of(desk.frame, work.group, work.owner)
    most = limits.job_time if isinstance(work, Job) else limits.session_time
    if most is not None and work.limit_s + more > most and not desk.who.admin:
        raise ApiError(
            409,
            "exceeds_limit",
            f"{wish.work} of {record.user} may last {format_duration(work.limit_s)}; with {wish.time} more "
            f"that would be above what the policy allows in {work.group}, {format_duration(most)}.",
            used=work.limit_s,
            limit=most,
            unit="s",
            hint="An administrator can approve it.",
        )
    return extended(work, more, desk.ledger.leases)


def _seconds(wish: TimeWish) -> int:
    try:
        return parse_duration(wish.time, what="time")
    except UnitError as error:
        raise invalid(error.message, error.remedy) from None


def text_of(record: RequestRecord | NewRequest) -> str:
    """Say what is asked for: ``2 GPUs more for ada in vision until 3d``."""
    wants = record.wants
    since = _words("from", "in", wants.get("start"))
    until = since + _words("until", "for", wants.get("until"))
    if record.kind == "time":
        return f"{wants['time']} more for {wants['work']}"
    if record.kind == "reservation":
        whom = ", ".join((*wants.get("groups", ()), *wants.get("users", ())))
        return f"{_cards_text(wants)} set apart for {whom}{until}"
    names = {"gpus": "GPU", "cpus": "CPU core", "gpu_hours": "GPU hour"}
    parts = [_several(wants[key], name) for key, name in names.items() if key in wants]
    parts += [_several(amount, f"{type_} GPU") for type_, amount in wants.get("gpus_by_type", {}).items()]
    parts += [f"{wants['mem']} of host memory"] if "mem" in wants else []
    whom = f"{wants['user']} in {wants['group']}" if wants.get("user") else wants["group"]
    return f"{', '.join(parts)} more for {whom}{until}"


def _for_whom(body: NewGrantRequest, group: str, user: str) -> dict[str, Any]:
    """Return for whom it is if the request does not say: its user; for a budget, the group."""
    if body.kind == "boost":
        return {"group": group, "user": user}
    if body.kind == "budget":
        return {"group": group}
    if body.kind == "reservation" and not body.wants.get("groups"):
        return {"users": [user]}
    return {}


def _own_work(wish: TimeWish, desk: Desk) -> Job | SessionRecord:
    work = work_of(wish.work, desk)
    if work.owner != desk.who.user:
        raise not_found(f"job or lease {wish.work} of yours", "See: jupyter gpupool jobs")
    return work


def _can_be_granted(kind: str, wish: Body, desk: Desk) -> None:
    """Refuse now what nobody could approve."""
    if isinstance(wish, BoostRequest):
        desk.group(wish.group)
        amounts, budget = wanted(wish)
        if kind == "budget" and (amounts or not budget):
            raise invalid("A higher budget is asked for in GPU hours.", "Write --gpu-hours and nothing else.")
        if wish.user is not None:
            limit_to_raise(wish.group, wish.user, amounts, budget, (desk.now, desk.now + 1), desk)
        if wish.until is not None:
            term(wish.start, wish.until, desk.policy.zone, desk.now)
        elif amounts:
            raise invalid("until is missing: whatever is granted has an end.", "Write --until, a date or 3d.")
    elif isinstance(wish, ReservationRequest):
        wanted_cards(wish, desk)
        term(wish.start, wish.until, desk.policy.zone, desk.now)
    elif isinstance(wish, TimeWish):
        more = _seconds(wish)
        extended(_own_work(wish, desk), more, desk.ledger.leases)


def _words(moment: str, duration: str, text: str | None) -> str:
    """Write one end of a term: `` until 18:00``, `` for 3d``."""
    if not text:
        return ""
    return f" {duration if is_duration(text) else moment} {text}"


def _several(amount: Any, thing: str) -> str:
    return f"{amount} {thing}" if str(amount).strip() == "1" else f"{amount} {thing}s"


def _cards_text(wants: Any) -> str:
    where = [wants[key] for key in ("gpu_type", "node", "partition") if wants.get(key)]
    number = _several(wants["gpus"], "GPU") if "gpus" in wants else "all GPUs"
    what = ", ".join(wants.get("cards", ())) or number
    return f"{what} ({', '.join(where)})" if where else what
