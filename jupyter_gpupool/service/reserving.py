"""Which cards are set apart, for whom, and what that meets.

Owns: the rules of reservations and maintenance: the choice of cards, the refusal of what overlaps, whose
quota it comes out of. Never: writing it down, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jupyter_gpupool.ledger.grant_records import NewReservation, ReservationRecord
from jupyter_gpupool.policy import units
from jupyter_gpupool.policy.cards import CardPattern, parse_card_pattern
from jupyter_gpupool.scheduler.model import Gpu, Lease, Seconds
from jupyter_gpupool.scheduler.quota import is_type
from jupyter_gpupool.scheduler.words import counted
from jupyter_gpupool.service.errors import ApiError, conflict, forbidden, invalid, nearest
from jupyter_gpupool.service.grant_wire import ReservationRequest
from jupyter_gpupool.service.granting import Desk, outranked, too_much, typed_resources
from jupyter_gpupool.service.terms import term

Ends = Callable[[Lease], Seconds]
"""When a lease is expected to end."""


def new_reservation(body: ReservationRequest, desk: Desk, ends: Ends) -> NewReservation:
    """Return the reservation that a request describes, with its cards chosen, if who grants it may.

    Raises
    ------
    ApiError
        A value cannot be read, the cards are reserved already, or are more than the giver owns.
    """
    start, end = term(body.start, body.until, desk.policy.zone, desk.now)
    found, count = wanted_cards(body, desk)
    taken = [kept for kept in lasting(desk) if kept.start < end and kept.end > start]
    if count is not None:
        cards = _some(found, count, desk, taken, start, ends)
    else:
        cards = found
        _refuse_overlap(cards, taken, desk)
    giver = _giver(body, desk)
    if giver is not None:
        for resource, amount in typed_resources(desk.policy, giver, cards).items():
            if amount > (left := desk.left(giver, resource, start, end)):
                raise too_much(giver, resource, amount, left, desk)
    return NewReservation(
        cards=tuple(gpu.uuid for gpu in cards),
        start=start,
        end=end,
        groups=tuple(body.groups),
        users=tuple(body.users),
        giver=giver,
        because=body.because.strip(),
    )


def wanted_cards(body: ReservationRequest, desk: Desk) -> tuple[list[Gpu], int | None]:
    """Return the cards that a request speaks of, and how many of them it wants; None = all.

    Raises
    ------
    ApiError
        It is for nobody who may have it, or names no cards, or more than there are.
    """
    _check_whom(body, desk)
    if body.cards:
        if body.gpus is not None or body.node or body.partition or body.gpu_type:
            raise invalid(
                "Cards are named one by one, or by their number.", "Write either --cards or --gpus."
            )
        named = [gpu for text in body.cards for gpu in _matching(text, desk.frame.gpus)]
        return list({gpu.uuid: gpu for gpu in named}.values()), None
    if body.gpus is None and body.node is None:
        raise invalid("Which cards?", "Write --cards node1:0-3, or --gpus 4, or --node node1 for all of it.")
    count = None if body.gpus is None else _count(body)
    found = _candidates(body, desk)
    if count is not None and count > len(found):
        raise invalid(
            f"{counted(count, 'card')} cannot be reserved of {counted(len(found), 'card')}.",
            "Reserve fewer, or elsewhere.",
        )
    return found, count


def lasting(desk: Desk) -> list[ReservationRecord]:
    """Return the reservations that hold now or will."""
    return [kept for kept in desk.ledger.grants.reservations.values() if kept.lasts(desk.now)]


def met(kept: NewReservation | ReservationRecord, leases: Iterable[Lease], ends: Ends) -> list[Lease]:
    """Return the leases of others on its cards that are expected to run past its start, longest first."""
    cards = set(kept.cards)
    found = [
        lease
        for lease in leases
        if not cards.isdisjoint(share.uuid for share in lease.placement.gpus)
        and lease.group not in kept.groups
        and lease.user not in kept.users
        and ends(lease) > kept.start
    ]
    return sorted(found, key=lambda lease: (-ends(lease), lease.id))


def words(kept: NewReservation | ReservationRecord, desk: Desk) -> str:
    """Say what is set apart: ``2 cards (node1 GPU 0, 1) for vision from 18:00 UTC until 20:00 UTC``."""
    whom = ", ".join((*kept.groups, *kept.users)) or "maintenance"
    return (
        f"{counted(len(kept.cards), 'card')} ({cards_text(kept.cards, desk.frame.gpus)}) for {whom} "
        f"from {desk.time(kept.start)} until {desk.time(kept.end)}"
    )


def cards_text(uuids: Iterable[str], gpus: Iterable[Gpu]) -> str:
    """Write cards by node and number: ``node1 GPU 0, 1; node2 GPU 3``."""
    wanted = set(uuids)
    by_node: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.uuid in wanted:
            by_node.setdefault(gpu.node, []).append(gpu.index)
            wanted.discard(gpu.uuid)
    known = [f"{node} GPU {', '.join(map(str, sorted(found)))}" for node, found in sorted(by_node.items())]
    return "; ".join([*known, *sorted(wanted)])


def _check_whom(body: ReservationRequest, desk: Desk) -> None:
    whom = [*map(desk.group, body.groups), *body.users]
    if body.maintenance and whom:
        raise invalid("Maintenance is for nobody.", "Name no group and no user, or reserve for them.")
    if not body.maintenance and not whom:
        raise invalid("A reservation is for somebody.", "Name a group with --for, or a user with --user.")


def _giver(body: ReservationRequest, desk: Desk) -> str | None:
    """Return the group whose quota it comes out of: the one named; for a manager, one that is managed.

    That is the one it is for; else, if there is no other, the one that the manager has.
    """
    if body.out_of is not None:
        giver = desk.group(body.out_of)
        if not desk.manages(giver):
            raise forbidden(f"{desk.who.user} does not manage {giver}, and cannot reserve out of its quota.")
        return giver
    if desk.who.admin:
        return None
    if own := next((group for group in body.groups if desk.manages(group)), None):
        return own
    managed = [group for group in desk.policy.groups if desk.manages(group)]
    if body.groups or not managed:
        outranked(", ".join((*body.groups, *body.users)) or "maintenance", desk)
    if len(managed) > 1:
        raise invalid("Out of which group's quota?", f"Name it with --out-of: {', '.join(managed)}.")
    return managed[0]


def _candidates(body: ReservationRequest, desk: Desk) -> list[Gpu]:
    """Return the cards of the node, partition and type that were named."""
    nodes = dict.fromkeys(gpu.node for gpu in desk.frame.gpus)
    for what, name, known in (
        ("node", body.node, nodes),
        ("partition", body.partition, desk.frame.partitions),
    ):
        if name is not None and name not in known:
            guess = nearest(name, known)
            hint = f"Did you mean {guess}?" if guess else f"There is {', '.join(known)}."
            raise invalid(f'There is no {what} "{name}".', hint)
    found = [
        gpu
        for gpu in desk.frame.gpus
        if body.node in (None, gpu.node)
        and body.partition in (None, gpu.partition)
        and (body.gpu_type is None or is_type(gpu.model, body.gpu_type))
    ]
    if not found:
        asked = (("node", body.node), ("partition", body.partition), ("type", body.gpu_type))
        named = ", ".join(f"{what} {name}" for what, name in asked if name is not None)
        raise invalid(f"There is no card of {named}.", "See: jupyter gpupool gpus")
    return found


def _matching(text: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    if named := [gpu for gpu in gpus if gpu.uuid == text]:
        return named
    try:
        pattern: CardPattern = parse_card_pattern(text)
    except units.UnitError as error:
        raise invalid(error.message, error.remedy) from None
    found = [gpu for gpu in gpus if pattern.matches(gpu)]
    if not found:
        raise invalid(f'"{text}" names no card of a partition.', "See: jupyter gpupool gpus")
    return found


def _some(
    found: list[Gpu], count: int, desk: Desk, taken: list[ReservationRecord], start: Seconds, ends: Ends
) -> list[Gpu]:
    """Return so many of the cards, of one node if one has them; those first that are free by then."""
    reserved = {card for kept in taken for card in kept.cards}
    free = [gpu for gpu in found if gpu.uuid not in reserved and gpu.available]
    if len(free) < count:
        raise _too_few(count, free, taken, desk)
    late = {
        share.uuid for lease in desk.ledger.held() for share in lease.placement.gpus if ends(lease) > start
    }
    free.sort(key=lambda gpu: (gpu.uuid in late, gpu.node, gpu.index))
    by_node: dict[str, list[Gpu]] = {}
    for gpu in free:
        by_node.setdefault(gpu.node, []).append(gpu)
    whole = [found[:count] for found in by_node.values() if len(found) >= count]
    return min(whole or [free[:count]], key=lambda found: sum(gpu.uuid in late for gpu in found))


def _count(body: ReservationRequest) -> int:
    try:
        return units.parse_count(body.gpus, what="gpus", minimum=1)
    except units.UnitError as error:
        raise invalid(error.message, error.remedy) from None


def _too_few(count: int, free: list[Gpu], taken: list[ReservationRecord], desk: Desk) -> ApiError:
    earliest = min(taken, key=lambda kept: kept.end, default=None)
    until = f" Reservation {earliest.id} is the first to end, {desk.time(earliest.end)}." if earliest else ""
    return ApiError(
        409,
        "reserved",
        f"{counted(count, 'card')} cannot be reserved there: {len(free)} can then, the others are reserved "
        f"or not available.{until}",
        used=len(free),
        limit=count,
        unit="cards",
        hint="Reserve fewer, another time, or elsewhere.",
    )


def _refuse_overlap(cards: list[Gpu], taken: list[ReservationRecord], desk: Desk) -> None:
    wanted = {gpu.uuid for gpu in cards}
    for kept in taken:
        if both := wanted & set(kept.cards):
            whom = ", ".join((*kept.groups, *kept.users)) or "maintenance"
            names = cards_text(both, cards)
            which = names if len(wanted) == 1 else f"{len(both)} of these {len(wanted)} cards ({names})"
            are = "is" if len(both) == 1 else "are"
            raise conflict(
                f"{which} {are} reserved for {whom} from {desk.time(kept.start)} until "
                f"{desk.time(kept.end)} (reservation {kept.id}).",
                f"End that one first, or reserve from {desk.time(kept.end)} on.",
            )
