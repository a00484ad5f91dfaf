"""Expected starts that are reserved.

Owns: carrying promises from one plan to the next, where they stay unless a named event moves them; taking
them off the board for work that goes before them, and putting them back.
Never: who gets a new one, or goes before one (see `dispatch`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.causes import cause_of
from jupyter_gpupool.scheduler.model import Placement, Promise, PromiseMove, Seconds, Work

Moved = tuple[Promise, str]  # a promise, and the cause to be named if it moves later; empty: to be found


class Promises:
    """The reservations on one board, and the moves that this plan made.

    `changes` counts what was altered, `changes_now` how often for this moment, if only for a look.
    """

    def __init__(self, board: Board, eligible: Callable[[Work], bool]) -> None:
        snapshot = board.snapshot
        self._board = board
        self._now = board.time
        self._reserved: dict[int, Promise] = {}
        self.changes = self.changes_now = 0
        self._due = 0
        self._by_group: dict[str, dict[int, Promise]] = {}
        self._broken: list[Moved] = []
        self._causes: dict[int, str] = {}
        self._works = {**board.promised}
        works = self._works
        made = [one for one in snapshot.promises if one.work in works and eligible(works[one.work])]
        self._carry(sorted(made, key=self._place))
        kept = [*self._reserved, *(promise.work for promise, _ in self._broken)]
        self.carried = {id_: self._works[id_] for id_ in kept if self._works[id_].kind == "job"}
        self._left = snapshot.settings.promises - len(self.carried)
        self._given = Counter(work.group for work in self.carried.values())

    def all(self) -> tuple[Promise, ...]:
        """Return all promises, soonest first."""
        return tuple(sorted(self._reserved.values(), key=lambda promise: (promise.start, promise.work)))

    def moves(self) -> tuple[PromiseMove, ...]:
        """Return the promises that are later now than they were, each with its cause."""
        made = [promise for promise in self._board.snapshot.promises if promise.work in self._reserved]
        later = ((promise, self._reserved[promise.work].start) for promise in made)
        return tuple(
            PromiseMove(promise.work, promise.start, start, self._causes[promise.work])
            for promise, start in later
            if start > max(promise.start, self._now)
        )

    def get(self, work: int) -> Promise | None:
        """Return the promise of a work, if it has one."""
        return self._reserved.get(work)

    def works(self) -> list[Work]:
        """Return the jobs that have a promise, if only one that is yet to be repaired."""
        works = (self._works[id_] for id_ in [*self._reserved, *(one.work for one, _ in self._broken)])
        return [work for work in works if work.kind == "job"]

    def any_of(self, group: str) -> bool:
        """Say whether some work of a group has a promise."""
        return bool(self._by_group.get(group))

    def any_due(self) -> bool:
        """Say whether a promise takes resources at this moment."""
        return self._due > 0

    def due(self, time: Seconds) -> list[Work]:
        """Return the jobs that are promised a start by `time`."""
        works = (self._works[one.work] for one in self._reserved.values() if one.start <= time)
        return [work for work in works if work.kind == "job"]

    def open_to(self, group: str) -> bool:
        """Say whether a job of `group` may get a promise: one is free, of all and of the group's."""
        return self._left > 0 and self._given[group] < self._board.snapshot.settings.promises_per_group

    @contextmanager
    def uncounted(self, group: str) -> Iterator[None]:
        """Leave out what a group, and those below it, are promised for now: it is not yet held."""
        upward = self._board.limits.upward
        due = [one for one in self._reserved.values() if one.start <= self._now]
        due = [one for one in due if group in upward(self._works[one.work].group)]
        self._count(due, -1)
        yield
        self._count(due, 1)

    def due_by(self, group: str, time: Seconds) -> list[Work]:
        """Return the works of a group that are promised a start by `time`."""
        reserved = self._by_group.get(group, {}).values()
        return [self._works[one.work] for one in reserved if one.start <= time]

    def give(self, work: Work, start: Seconds, placement: Placement) -> None:
        """Promise a start to a work that had none."""
        self._works[work.id] = work
        if work.kind == "job":
            self._left -= 1
            self._given[work.group] += 1
        self._reserve(Promise(work.id, start, placement, self._now))

    def lift(self, work: Work) -> Promise | None:
        """Take a work's own promise off the board, to try it sooner."""
        promise = self._reserved.get(work.id)
        if promise is not None:
            self._release(promise)
        return promise

    def restore(self, promise: Promise) -> None:
        """Put a lifted promise back as it was."""
        self._reserve(promise)

    def sooner(self, work: Work, promise: Promise) -> bool:
        """Put a lifted promise back, earlier if the board allows that now; say whether it does."""
        found = self._board.earliest(work, promise.start)
        self._reserve(Promise(work.id, *found, promise.made) if found else promise)
        return found is not None

    def lift_if(self, cause: Callable[[Work], str]) -> list[Moved]:
        """Take promises off the board for work that goes before them: those for which there is a cause."""
        caused = [(one, cause(self._works[one.work])) for one in self._reserved.values()]
        lifted = [moved for moved in caused if moved[1]]
        for promise, _ in lifted:
            self._release(promise)
        return lifted

    @contextmanager
    def without(self, lifted: Iterable[Promise]) -> Iterator[None]:
        """Take promises off the board for a look at it; they are as they were afterwards."""
        off = [*lifted]
        for promise in off:
            self._book(promise, -1)
        yield
        for promise in off:
            self._book(promise, 1)

    @contextmanager
    def off_the_floor(self, lifted: Iterable[Promise]) -> Iterator[None]:
        """Take promises off the cards and nodes for a look at these alone; limits count them on."""
        claims = [self._claim(promise) for promise in lifted]
        for claim in claims:
            self._board.floor.book(*claim, -1)
        yield
        for claim in claims:
            self._board.floor.book(*claim, 1)

    def reserved(self, gives_way: Callable[[Work], object]) -> list[Promise]:
        """Return the promises of those that give way."""
        return [promise for promise in self._reserved.values() if gives_way(self._works[promise.work])]

    def lasting(self, stays: Callable[[Work], bool]) -> Iterator[tuple[Promise, Seconds]]:
        """Yield the promises of those that stay, each with its end."""
        for promise in self._reserved.values():
            if stays(self._works[promise.work]):
                yield promise, self._claim(promise)[3]

    def put_back(self, lifted: Iterable[Moved]) -> None:
        """Reserve lifted promises again; those that no longer fit are moved later, for their cause."""
        for promise, cause in sorted(lifted, key=lambda moved: self._place(moved[0])):
            self._keep(promise, cause)

    def leave(self, lifted: Iterable[Moved]) -> None:
        """Reserve lifted promises again as they were, since nothing came of it."""
        for promise, _ in lifted:
            self._reserve(promise)

    def repair(self) -> None:
        """Give promises that no longer hold the next start that moves no other, and name the cause."""
        if not self._broken:
            return
        broken, self._broken = self._broken, []
        for promise, cause in broken:
            work = self._works[promise.work]
            found = self._board.earliest(work)
            if found is None:
                continue
            start, placement = found
            self._reserve(Promise(work.id, start, placement, promise.made))
            if start > promise.start and work.id not in self._causes:
                self._causes[work.id] = cause or cause_of(self._board, work, promise)

    def _place(self, promise: Promise) -> tuple[Seconds, bool, Seconds, int]:
        """Sort promises by their starts: of those at one moment, who may borrow comes after who may not."""
        may_borrow = self._board.limits.may_borrow(self._works[promise.work])
        return promise.start, may_borrow, promise.made, promise.work

    def _carry(self, made: Sequence[Promise]) -> None:
        """Keep what was promised, in this order.

        What is on the board from the last pass stays there, if all hold together.
        """
        board = self._board
        self._free(board.reserved.keys() - {promise.work for promise in made})
        if all(map(self._holds_with_all, made)):
            for promise in made:
                self._note(board.reserved[promise.work].promise)
        else:
            self._free(board.reserved.keys())
            for promise in made:
                self._keep(promise, "")

    def _free(self, works: Iterable[int]) -> None:
        """Take what is promised to these works off the board."""
        for id_ in [*works]:
            self._board.reserve(*self._board.reserved[id_], -1)

    def _holds_with_all(self, promise: Promise) -> bool:
        """Say whether a promise holds with those on the board; it is there afterwards."""
        board, work, start = self._board, self._works[promise.work], max(promise.start, self._now)
        if work.id in board.reserved:
            return board.undisturbed or board.holds(work, promise.placement, start, booked=True)
        holds = board.holds(work, promise.placement, start)
        if holds:
            board.reserve(work, Promise(work.id, start, promise.placement, promise.made))
        return holds

    def _keep(self, promise: Promise, cause: str) -> None:
        work = self._works[promise.work]
        start = max(promise.start, self._now)
        if self._board.holds(work, promise.placement, start):
            self._reserve(Promise(work.id, start, promise.placement, promise.made))
        elif work.kind == "job":
            self._broken.append((promise, cause))
        else:
            self._causes[work.id] = cause or cause_of(self._board, work, promise)

    def _reserve(self, promise: Promise) -> None:
        self.changes += 1
        self._note(promise)
        self._book(promise, 1)

    def _note(self, promise: Promise) -> None:
        self._reserved[promise.work] = promise
        self._due += promise.start <= self._now
        self._by_group.setdefault(self._works[promise.work].group, {})[promise.work] = promise

    def _release(self, promise: Promise) -> None:
        self.changes += 1
        del self._reserved[promise.work]
        self._due -= promise.start <= self._now
        del self._by_group[self._works[promise.work].group][promise.work]
        self._book(promise, -1)

    def _book(self, promise: Promise, sign: int) -> None:
        self.changes_now += promise.start <= self._now
        self._board.reserve(self._works[promise.work], promise, sign)

    def _count(self, promises: Iterable[Promise], sign: int) -> None:
        for promise in promises:
            self.changes_now += promise.start <= self._now
            self._board.limits.book(*self._claim(promise), sign)

    def _claim(self, promise: Promise) -> tuple[Work, Placement, Seconds, Seconds]:
        work, placement, start = self._works[promise.work], promise.placement, promise.start
        return work, placement, start, self._board.end_of(work, placement, start)
