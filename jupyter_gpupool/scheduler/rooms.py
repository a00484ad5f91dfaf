"""What is free in each node at one moment, and for how long.

Owns: one node's room, and leaving out rooms in which nothing fits that does not fit in another.
Never: who could use it (`shortlist`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import le

from jupyter_gpupool.scheduler.card import NOBODY
from jupyter_gpupool.scheduler.model import Mib, Seconds


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in one node of a bay: so many whole cards, so large a piece, for so long.

    `lasts` says for how long one card is free, two are, and so on; a piece is for as long as the first. It is
    there for those whom the reservations `serving` serve.
    """

    idle: int
    mib: Mib
    cpus: int
    memory: Mib
    lasts: tuple[Seconds, ...]
    serving: frozenset[int] = NOBODY

    def within(self, other: Room) -> bool:
        """Say whether whatever fits here fits in `other`."""
        return (
            self.idle <= other.idle
            and self.mib <= other.mib
            and self.cpus <= other.cpus
            and self.memory <= other.memory
            and all(map(le, self.lasts, other.lasts))
            and self.serving >= other.serving
        )


@dataclass(frozen=True, slots=True)
class Rooms:
    """All that is free: of each node, without what another node has more of; and the largest piece."""

    each: list[Room]
    mib: Mib


def largest_of(found: Iterable[Room]) -> Rooms:
    """Leave out rooms that have nothing that another one has not."""
    rooms: list[Room] = []
    for room in found:
        if not any(map(room.within, rooms)):
            rooms = [other for other in rooms if not other.within(room)]
            rooms.append(room)
    return Rooms(rooms, max((room.mib for room in rooms), default=0))
