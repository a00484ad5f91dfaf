"""Boosts, reservations and requests as replies.

Owns: what each asker may see of them, in the shapes of `grant_replies`. Never: a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jupyter_gpupool.ledger.budgets import GPU_HOUR
from jupyter_gpupool.ledger.grant_records import (
    BoostRecord,
    DrainRecord,
    RequestRecord,
    ReservationRecord,
)
from jupyter_gpupool.scheduler.model import Lease
from jupyter_gpupool.service.grant_replies import (
    BoostReply,
    DrainReply,
    GrantRequestReply,
    MetReply,
    Phase,
    ReservationReply,
)
from jupyter_gpupool.service.granting import Desk
from jupyter_gpupool.service.moments import iso
from jupyter_gpupool.service.reserving import Ends, met
from jupyter_gpupool.service.visibility import sees_names


def wire_names(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the scheduler's amounts by the names of the wire: ``gpus_milli`` for ``gpu_milli``."""
    return {name.replace("gpu_milli", "gpus_milli"): amount for name, amount in amounts.items()}


def boost_reply(record: BoostRecord, desk: Desk, notes: Iterable[str] = ()) -> BoostReply:
    """Return a boost as who asks may see it."""
    named = _named(desk, record.by, record.user)
    return {
        "id": record.id,
        "group": record.group,
        "user": record.user if named else None,
        "out_of": record.giver,
        "amounts": wire_names(record.amounts),
        "gpu_hours": record.budget / GPU_HOUR,
        "start": iso(record.start),
        "until": iso(record.end if record.ended is None else record.ended),
        "because": record.because if named else None,
        "by": record.by if named else None,
        "phase": _phase(record, desk),
        "notes": list(notes),
    }


def reservation_reply(record: ReservationRecord, desk: Desk, ends: Ends) -> ReservationReply:
    """Return a reservation as who asks may see it."""
    named = _named(desk, record.by, *record.users)
    known = {gpu.uuid: gpu for gpu in desk.frame.gpus}
    there = [(uuid, known.get(uuid)) for uuid in record.cards]
    phase = _phase(record, desk)
    in_its_way = [] if phase == "over" else met(record, desk.ledger.held(), ends)
    return {
        "id": record.id,
        "cards": [
            {"uuid": uuid, "node": gpu.node if gpu else None, "index": gpu.index if gpu else None}
            for uuid, gpu in there
        ],
        "groups": list(record.groups),
        "users": list(record.users) if named else None,
        "maintenance": record.maintenance,
        "out_of": record.giver,
        "start": iso(record.start),
        "until": iso(record.end if record.ended is None else record.ended),
        "because": record.because if named or record.maintenance else None,
        "by": record.by if named else None,
        "phase": phase,
        "met": [met_reply(lease, desk, ends) for lease in in_its_way],
    }


def met_reply(lease: Lease, desk: Desk, ends: Ends) -> MetReply:
    """Return work that is in the way as who asks may see it."""
    return {
        "id": lease.work,
        "kind": lease.kind,
        "user": lease.user if _named(desk, lease.user) else None,
        "group": lease.group,
        "until": iso(ends(lease)),
    }


def request_reply(record: RequestRecord, text: str) -> GrantRequestReply:
    """Return a request; `text` says what is asked for."""
    return {
        "id": record.id,
        "kind": record.kind,
        "user": record.user,
        "group": record.group,
        "text": text,
        "wants": dict(record.wants),
        "because": record.because,
        "at": iso(record.at),
        "state": record.state.value,
        "by": record.by,
        "answer": record.answer or None,
        "decided": iso(record.decided),
        "grant": record.grant,
    }


def drain_reply(node: str, record: DrainRecord | None, desk: Desk, ends: Ends) -> DrainReply:
    """Return whether a node takes new work, and what runs there."""
    running = [lease for lease in desk.ledger.held() if node in lease.placement.nodes]
    running.sort(key=lambda lease: (-ends(lease), lease.id))
    return {
        "node": node,
        "drained": record is not None,
        "because": record.because if record else "",
        "running": [met_reply(lease, desk, ends) for lease in running],
    }


def _named(desk: Desk, *users: str | None) -> bool:
    return desk.who.user in users or sees_names(desk.policy, desk.who)


def _phase(record: BoostRecord | ReservationRecord, desk: Desk) -> Phase:
    if not record.lasts(desk.now):
        return "over"
    return "now" if record.start <= desk.now else "coming"
