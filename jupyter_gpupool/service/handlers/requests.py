"""Requests: what users ask for, and what managers and administrators answer.

Owns: asking, listing, approving, denying and withdrawing; who may see and decide which. Never: whether the
grant itself is allowed (see `granting` and `reserving`).
"""

from __future__ import annotations

import logging
from typing import Any

from jupyter_gpupool.engines.base import EngineError
from jupyter_gpupool.ledger.grant_records import RequestRecord
from jupyter_gpupool.ledger.grants import Answer
from jupyter_gpupool.ledger.records import SessionRecord
from jupyter_gpupool.policy.model import ROOT
from jupyter_gpupool.service import occasions
from jupyter_gpupool.service.asking import is_open, more_time, new_request, text_of, wish_of
from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.core import Service
from jupyter_gpupool.service.errors import conflict, forbidden, not_found
from jupyter_gpupool.service.grant_replies import GrantRequestReply, GrantRequestsReply
from jupyter_gpupool.service.grant_views import request_reply
from jupyter_gpupool.service.grant_wire import (
    AnswerRequest,
    BoostRequest,
    NewGrantRequest,
    ReservationRequest,
    TimeWish,
)
from jupyter_gpupool.service.granting import Desk, new_boost
from jupyter_gpupool.service.handlers.desk import changed, desk_of, did, ends_of
from jupyter_gpupool.service.handlers.jobs import rules_of
from jupyter_gpupool.service.reserving import new_reservation
from jupyter_gpupool.service.submission import group_of, no_group

log = logging.getLogger("gpupool")

SHOWN = 100


async def list_requests(call: Call[None]) -> GrantRequestsReply:
    """List the user's own requests and those the user may decide, newest first."""
    desk = desk_of(call)
    found = [one for one in desk.ledger.grants.requests.values() if _sees(one, desk)]
    if not call.query["all"]:
        found = [one for one in found if is_open(one)]
    newest = sorted(found, key=lambda one: -one.id)[:SHOWN]
    return {"requests": [_reply(one) for one in newest]}


async def ask(call: Call[NewGrantRequest]) -> GrantRequestReply:
    """Put a request before those who may grant it."""
    desk = desk_of(call)
    group = group_of(call.body.group, rules_of(call.service, call.who))
    if group is None and call.body.kind != "time":
        raise no_group("Ask an administrator to add you to a group.")
    new = new_request(call.body, group or ROOT, desk)
    record = desk.ledger.grants.ask(new, did(call, "request", f"{text_of(new)}. {new.because}"))
    _tell(call, record)
    return _reply(record)


async def approve(call: Call[AnswerRequest]) -> GrantRequestReply:
    """Grant what was asked for, with a sentence; the grant and the answer are one step."""
    desk = desk_of(call)
    record = _decidable(call, desk)
    answer = Answer(record.id, call.body.answer.strip())
    note = did(call, "approve", f"Request {record.id} of {record.user}: {text_of(record)}. {answer.text}")
    wish = wish_of(record, call.body, desk)
    grants = desk.ledger.grants
    if isinstance(wish, BoostRequest):
        grants.boost(new_boost(wish, desk), note, answer)
    elif isinstance(wish, ReservationRequest):
        grants.reserve(new_reservation(wish, desk, ends_of(call)), note, answer)
    elif isinstance(wish, TimeWish):
        grants.extend(more_time(wish, record, desk), note, answer)
        await _go_on(call.service, wish.work)
    changed(call)
    return _answered(call, record)


async def deny(call: Call[AnswerRequest]) -> GrantRequestReply:
    """Deny what was asked for, with a sentence."""
    desk = desk_of(call)
    record = _decidable(call, desk)
    answer = Answer(record.id, call.body.answer.strip())
    note = did(call, "deny", f"Request {record.id} of {record.user}: {text_of(record)}. {answer.text}")
    desk.ledger.grants.refuse(answer, note)
    return _answered(call, record)


async def withdraw(call: Call[None]) -> GrantRequestReply:
    """Take one's own request back."""
    desk = desk_of(call)
    record = desk.ledger.grants.requests.get(call.id)
    if record is None or record.user != call.who.user:
        raise not_found(f"request {call.id} of yours", "List them with: jupyter gpupool requests")
    desk.ledger.grants.withdraw(record.id, did(call, "withdraw", f"Request {record.id}: {text_of(record)}."))
    return _answered(call, record)


async def _go_on(service: Service, number: int) -> None:
    """Let those who bound the time of work know how long it may last by now."""
    work = service.ledger.jobs.get(number) or service.ledger.sessions[number]
    lease = None if work.lease is None else service.ledger.leases[work.lease]
    if lease is None or not lease.live:
        return
    if isinstance(work, SessionRecord) and work.server is None:
        service.sessions.longer(lease)
        return
    try:
        await service.engine.extend(lease.key, work.limit_s)
    except EngineError as error:
        log.warning("Whether %s %s has its whole time is not known: %s", lease.kind, number, error)


def _sees(record: RequestRecord, desk: Desk) -> bool:
    return record.user == desk.who.user or desk.manages(record.group)


def _decidable(call: Call[Any], desk: Desk) -> RequestRecord:
    """Return the request that the address names, if the user may decide it and nobody has."""
    record = desk.ledger.grants.requests.get(call.id)
    if record is None or not _sees(record, desk):
        raise not_found(f"request {call.id} that you may decide", "List them with: jupyter gpupool requests")
    if not desk.manages(record.group):
        raise forbidden(f"Request {record.id} is decided by a manager of {record.group} or an administrator.")
    if not is_open(record):
        raise conflict(f"Request {record.id} is {record.state.value} already.")
    return record


def _answered(call: Call[Any], before: RequestRecord) -> GrantRequestReply:
    record = call.service.ledger.grants.requests[before.id]
    _tell(call, record)
    return _reply(record)


def _tell(call: Call[Any], record: RequestRecord) -> None:
    """Tell who asked, and who may decide, that a request has another state."""
    policy = call.service.policy
    groups = [record.group, *policy.above(record.group)]
    managers = {name for group in groups if group in policy.groups for name in policy.groups[group].managers}
    call.service.news.request(record, {record.user, *managers})
    for message in occasions.of_request(record, text_of(record), managers):
        call.service.notices.tell(message)


def _reply(record: RequestRecord) -> GrantRequestReply:
    return request_reply(record, text_of(record))
