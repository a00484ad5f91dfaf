"""Reservations and maintenance: cards set apart from one moment to another.

Owns: making, listing and ending them. Never: which cards, and who may (see `reserving`).
"""

from __future__ import annotations

from jupyter_gpupool.service.call import Call
from jupyter_gpupool.service.errors import forbidden, not_found
from jupyter_gpupool.service.grant_replies import ReservationReply, ReservationsReply
from jupyter_gpupool.service.grant_views import reservation_reply
from jupyter_gpupool.service.grant_wire import ReservationRequest
from jupyter_gpupool.service.handlers.desk import changed, desk_of, did, ends_of
from jupyter_gpupool.service.reserving import lasting, new_reservation, words


async def list_reservations(call: Call[None]) -> ReservationsReply:
    """List the reservations that hold or will."""
    desk, ends = desk_of(call), ends_of(call)
    found = sorted(lasting(desk), key=lambda kept: (kept.start, kept.id))
    return {"reservations": [reservation_reply(kept, desk, ends) for kept in found]}


async def reserve(call: Call[ReservationRequest]) -> ReservationReply:
    """Set cards apart, and say what runs there past the start."""
    desk, ends = desk_of(call), ends_of(call)
    new = new_reservation(call.body, desk, ends)
    action = "maintenance" if call.body.maintenance else "reserve"
    record = desk.ledger.grants.reserve(new, did(call, action, f"{words(new, desk)}. {new.because}".strip()))
    changed(call)
    return reservation_reply(record, desk, ends)


async def end(call: Call[None]) -> ReservationReply:
    """End a reservation early: an administrator any, a manager one out of the own group's quota."""
    desk, ends = desk_of(call), ends_of(call)
    known = desk.ledger.grants.reservations.get(call.id)
    if known is None:
        raise not_found(f"reservation {call.id}", "List them with: jupyter gpupool reserve")
    if not desk.who.admin and (known.giver is None or not desk.manages(known.giver)):
        raise forbidden(f"Reservation {known.id} was granted by {known.by}; it is not yours to end.")
    note = did(call, "end reservation", f"Reservation {known.id} ended.")
    record = desk.ledger.grants.end_reservation(known.id, note)
    changed(call)
    return reservation_reply(record, desk, ends)
