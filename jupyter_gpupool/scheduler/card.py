"""One card over time.

Owns: what is free on a card for each kind of work, and for those whom a reservation serves.
Never: the choice among cards (`placement`).
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpupool.scheduler.model import Gpu, Kind, Mib, Reservation, Seconds
from jupyter_gpupool.scheduler.timeline import FOREVER, Profile

Held = tuple[Kind, Seconds, Mib]

_NO_LEASES: list[Held] = []  # shared by all cards that have none; never changed
_NO_SEATS: dict[int, Held] = {}  # the same
NOBODY: frozenset[int] = frozenset()


class Card:
    """One card, seen by the kinds of work it serves: each sees a card that the other uses as full.

    So is a reserved card for all but those whom the reservation serves. `first_end` and `last_end` are
    those of its leases, 0 when there are none. The leases of the snapshot have seats, to which `reset` goes
    back. Leases are only noted until somebody asks for the views: most of a large pool's cards are never
    looked at again.
    """

    __slots__ = (
        "_booked",
        "_kinds",
        "_leased",
        "_leases",
        "_seats",
        "_served",
        "_views",
        "first_end",
        "gpu",
        "last_end",
        "memory",
        "order",
        "reservations",
        "site",
    )

    def __init__(self, gpu: Gpu, kinds: Iterable[Kind], reservations: tuple[Reservation, ...] = ()) -> None:
        self.gpu = gpu
        self.memory = gpu.memory_mib
        self.reservations = reservations
        self.site = self.order = -1
        self.first_end = self.last_end = 0
        self._kinds = kinds
        self._leases: list[Held] = _NO_LEASES
        self._leased: Mib = 0
        self._seats: dict[int, Held] = _NO_SEATS
        self._views: dict[Kind, Profile] | None = None
        self._booked = False
        self._served: dict[tuple[Kind, frozenset[int]], Profile] = {}

    @property
    def in_bay(self) -> bool:
        """Say whether the card is laid out for use."""
        return self.order >= 0

    @property
    def only_frees(self) -> bool:
        """Say whether nothing but ends of leases is known to change what is free."""
        return not self._booked and not self.reservations

    @property
    def views(self) -> dict[Kind, Profile]:
        """Return what is free over time for each kind of work that no reservation serves."""
        if self._views is None:
            self._views = {kind: Profile(self.memory) for kind in self._kinds}
            for view in self._views.values():
                self._reserve(view, self.reservations, 1)
            for kind, end, mib in self._leases:
                self._take(kind, 0, end, mib, 1)
        return self._views

    def view(self, kind: Kind, serving: frozenset[int]) -> Profile:
        """Return what is free over time for one kind of work that the reservations `serving` serve."""
        own = [found for found in self.reservations if found.id in serving] if serving else []
        if not own:
            return self.views[kind]
        key = kind, frozenset(found.id for found in own)
        view = self._served.get(key)
        if view is None:
            view = self._served[key] = self.views[kind].copy()
            self._reserve(view, own, -1)
        return view

    def free(self, kind: Kind, serving: frozenset[int], time: Seconds) -> Mib:
        """Return what is free for one kind of work at `time`; negative where leases overlap."""
        if self._views is not None or self.reservations:
            return self.view(kind, serving).at(time)
        free = self.memory
        for holder, end, mib in self._leases:
            if time < end:
                free -= mib if holder == kind else self.memory
        return free

    def reserved(self, serving: frozenset[int], time: Seconds) -> bool:
        """Say whether one of the reservations `serving` keeps the card at `time`."""
        return any(one.id in serving and one.start <= time < one.end for one in self.reservations)

    def kept_from(self, serving: frozenset[int], time: Seconds) -> list[Reservation]:
        """Return the reservations that keep the card at `time` from all but those whom others serve."""
        return [one for one in self.reservations if one.id not in serving and one.start <= time < one.end]

    def book(self, kind: Kind, start: Seconds, end: Seconds, mib: Mib, sign: int = 1) -> None:
        """Take `mib` for work of `kind` over [start, end); `sign` -1 gives it back."""
        self._booked = True
        self._take(kind, start, end, mib, sign)

    def seat(self, lease: int, held: Held) -> None:
        """Let a lease of the snapshot have its part, from the next `reset` on."""
        if self._seats is _NO_SEATS:
            self._seats = {}
        self._seats[lease] = held

    def unseat(self, lease: int) -> None:
        """Take back what a lease had that is over, at the next `reset`."""
        del self._seats[lease]

    def reset(self) -> None:
        """Be as the leases of the snapshot leave it."""
        self._leases = [*self._seats.values()] if self._seats else _NO_LEASES
        ends = [end for _, end, _ in self._leases]
        self.first_end, self.last_end = min(ends, default=0), max(ends, default=0)
        self._leased = sum(mib for _, _, mib in self._leases)
        self._views = None
        self._booked = False
        self._served.clear()

    def hold(self, kind: Kind, end: Seconds, mib: Mib) -> None:
        """Take `mib` for a lease that exists and ends at `end`."""
        self.first_end = min(self.first_end or end, end)
        self.last_end = max(self.last_end, end)
        self._leased += mib
        if self._leases is _NO_LEASES:
            self._leases = []
        self._leases.append((kind, end, mib))
        if self._views is not None:
            self._take(kind, 0, end, mib, 1)

    def move_end(self, kind: Kind, old: Seconds, new: Seconds, mib: Mib) -> None:
        """Let a lease that was held until `old` end at `new`."""
        self._leases[self._leases.index((kind, old, mib))] = kind, new, mib
        ends = [end for _, end, _ in self._leases]
        self.first_end, self.last_end = min(ends), max(ends)
        if self._views is not None:
            self._take(kind, min(old, new), max(old, new), mib, 1 if new > old else -1)

    def first_chance(self, whole: bool) -> Seconds:
        """Return a time before which leases leave nothing free here (`whole`: not all of the card)."""
        if whole:
            return self.last_end
        return self.first_end if self._leased >= self.memory else 0

    def _take(self, kind: Kind, start: Seconds, end: Seconds, mib: Mib, sign: int) -> None:
        for viewer, view in self.views.items():
            view.book(start, end, sign * (mib if viewer == kind else self.memory))
        for (viewer, _), view in self._served.items():
            view.book(start, end, sign * (mib if viewer == kind else self.memory))

    def _reserve(self, view: Profile, reservations: Iterable[Reservation], sign: int) -> None:
        for found in reservations:
            view.book(found.start, found.end, sign * self.memory)


def lasts(view: Profile, time: Seconds, until: Seconds) -> Seconds:
    """Return until when something stays free in a view, if it is at `time`; for ever if to `until`."""
    reach = view.reach(1, time)
    return FOREVER if reach >= until else reach
