"""Why a promise does not hold any more.

Owns: naming the one thing that made it impossible: a card, a reservation, a lease in its way, back-off, the
hand-back of lent cards, or else the policy. Never: moving it (`promises`).
"""

from __future__ import annotations

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Lease, Placement, Promise, Reservation, Work

POLICY_CHANGE = "policy change"


def cause_of(board: Board, work: Work, promise: Promise) -> str:
    """Name what made a promise impossible."""
    return (
        _card(board, promise.placement)
        or _reservation(board, work, promise)
        or _gate(board, work, promise)
        or _lease(board, work, promise)
        or _extension(board, work, promise, alone=True)
        or _late_start(board, promise)
        or _extension(board, work, promise, alone=False)
        or POLICY_CHANGE
    )


def _card(board: Board, placement: Placement) -> str:
    """Name a card that was lost, or takes no work: drained, broken."""
    for uuid in sorted(_uuids(placement)):
        card = board.floor.cards.get(uuid)
        if card is None:
            return f"card {uuid} was lost"
        if not card.in_bay:
            return f"card {card.gpu.index} of {card.gpu.node} is not available"
    return ""


def _reservation(board: Board, work: Work, promise: Promise) -> str:
    """Name a reservation of its cards for others, or their maintenance."""
    start = max(promise.start, board.time)
    end = board.end_of(work, promise.placement, start)
    for one in board.snapshot.reservations:
        overlaps = one.start < end and start < one.end and one.gpus & _uuids(promise.placement)
        if overlaps and not one.serves(work.group, work.user):
            return _named(one)
    return ""


def _named(found: Reservation) -> str:
    return f"{'reservation' if found.groups or found.users else 'maintenance'} {found.id}"


def _gate(board: Board, work: Work, promise: Promise) -> str:
    """Name what forbids a start at its time: back-off, its window, the hand-back of a lent card."""
    now, partition = board.time, promise.placement.partition
    if work.not_before > promise.start:
        return "a stop or a failed start, after which it is tried again later"
    if work.window is not None and promise.start < now and board.gate(work, now) != now:
        return f"window {work.window} closed before it could start"
    if promise.start < now and board.limits.ends.lent(work.kind, partition):
        options = (option for option in board.options(work) if option.bay.partition == partition)
        if not any(option.term(work, now) for option in options):
            return f"hand-back of {partition}"
    return ""


def _lease(board: Board, work: Work, promise: Promise) -> str:
    """Name a lease in its way: past its end, or of a session that began since."""
    now, uuids, nodes = board.time, _uuids(promise.placement), set(promise.placement.nodes)
    partition = promise.placement.partition

    def distance(lease: Lease) -> int:
        if uuids & _uuids(lease.placement):
            return 0
        near = lease.group == work.group or lease.user == work.user or nodes & set(lease.placement.nodes)
        takes_headroom = partition in board.floor.headrooms and lease.placement.partition == partition
        return 1 if near or takes_headroom else 2

    leases = sorted(board.snapshot.leases, key=distance)
    for lease in leases:
        if board.limits.ends.due(lease) <= now:
            return f"late end of {lease.kind} {lease.work}"
    longer = [lease for lease in leases if board.expected_end(lease) > promise.start]
    for lease in longer:
        if lease.kind == "session" and lease.start >= promise.made and distance(lease) < 2:
            return f"session {lease.work}"
    return ""


def _extension(board: Board, work: Work, promise: Promise, *, alone: bool) -> str:
    """Name a lease on its cards that lasts longer now: one that leaves no room there `alone`, or any."""
    ours = {share.uuid: share.mib for share in promise.placement.gpus}
    for lease in board.snapshot.leases:
        both = [
            lease.kind != work.kind or share.mib + ours[share.uuid] > board.floor.cards[share.uuid].memory
            for share in lease.placement.gpus
            if share.uuid in ours
        ]
        if both and board.expected_end(lease) > promise.start and (any(both) or not alone):
            return f"extension of {lease.kind} {lease.work}"
    return ""


def _late_start(board: Board, promise: Promise) -> str:
    """Name a promised start that is overdue: the nearest."""
    uuids = _uuids(promise.placement)
    late = [other for other in board.snapshot.promises if other.start < board.time and other is not promise]
    if not late:
        return ""
    nearest = max(late, key=lambda one: bool(uuids & _uuids(one.placement)))
    return f"late start of job {nearest.work}"


def _uuids(placement: Placement) -> set[str]:
    return {share.uuid for share in placement.gpus}
