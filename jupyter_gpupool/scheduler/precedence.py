"""Before whose promises a job goes.

Owns: the rule by which a promise gives way to later work that ranks before it: to another group's work inside
quota, if it would borrow itself; to a higher class that pays more, or preempts, if it is of a lower one.
Never: moving a promise (`promises`). Sessions go before all promises of jobs.
"""

from __future__ import annotations

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Work
from jupyter_gpupool.scheduler.promises import Promises
from jupyter_gpupool.scheduler.quota import UNBOUNDED
from jupyter_gpupool.scheduler.ranking import CHARGE_UNIT, class_value
from jupyter_gpupool.scheduler.stopping import PLAIN


class Precedence:
    """The rule in one pass; `ahead` are the works whose turn has been: they give way to none that follows."""

    def __init__(self, board: Board, promises: Promises) -> None:
        self.ahead: set[int] = set()
        self._board = board
        self._promises = promises
        self._inside: dict[int, bool] = {}
        self._weakest: tuple[bool, int] | None = None

    def started(self) -> None:
        """Take note of a start: groups hold more now."""
        self._inside.clear()
        self._weakest = None

    def may_overtake(self, work: Work) -> bool:
        """Say, at little cost, whether a job could go before any promise."""
        borrows, value = self._weakest_promised()
        return (self.pays(work.priority) and self._value(work) > value) or (borrows and self._is_inside(work))

    def any_borrows(self) -> bool:
        """Say whether some job that is promised a start would borrow."""
        return self._weakest_promised()[0]

    def overtakes(self, work: Work, other: Work) -> str:
        """Return why the promise of `other` gives way to a job, to be named if it moves; else nothing."""
        if other.kind != "job" or other.id in self.ahead:
            return ""
        if work.group != other.group and self._is_inside(work) and not self._is_inside(other):
            return f"job {work.id} inside quota of {work.group}"
        if self.pays(work.priority) and self._value(other) < self._value(work):
            return f"job {work.id} of higher class {work.priority}"
        return ""

    def price(self, work: Work) -> int | None:
        """Return the value of a job's class if lower ones give way to it; None if they do not."""
        return self._value(work) if self.pays(work.priority) else None

    def may_give_way(self, other: Work, price: int | None) -> bool:
        """Say whether the promise of `other` could give way to some job whose class is of that `price`."""
        if other.kind != "job" or other.id in self.ahead:
            return False
        return not self._is_inside(other) or (price is not None and self._value(other) < price)

    def before_whom(self, work: Work) -> tuple[int | None, bool, str]:
        """Tell apart jobs before which other promises may give way: those alike go before the same ones."""
        own = work.group if self._promises.any_of(work.group) else ""
        return self.price(work), self._is_inside(work), own

    def takes_back(self, work: Work, other: Work) -> str:
        """Return the same for a job for which others are asked to stop."""
        return self.overtakes(work, other) and f"reclaim for job {work.id} of {work.group}"

    def pays(self, priority: str) -> bool:
        """Say whether lower classes give way to this one."""
        cls = self._board.snapshot.priorities.get(priority, PLAIN)
        return cls.charge_milli > CHARGE_UNIT or cls.preempts

    def _weakest_promised(self) -> tuple[bool, int]:
        """Return whether some job that is promised a start would borrow, and the lowest class of them all."""
        if self._weakest is None:
            promised = self._promises.works()
            borrows = not all(map(self._is_inside, promised))
            self._weakest = borrows, min(map(self._value, promised), default=UNBOUNDED)
        return self._weakest

    def _value(self, work: Work) -> int:
        snapshot = self._board.snapshot
        return class_value(work, snapshot.priorities, snapshot.settings.age_step)

    def _is_inside(self, work: Work) -> bool:
        found = self._inside.get(work.id)
        if found is None:
            found = self._inside[work.id] = self._would_be_inside(work)
        return found

    def _would_be_inside(self, work: Work) -> bool:
        """Say whether a group is inside quota with `work`, whose own promise may be due."""
        board, promise = self._board, self._promises.get(work.id)
        amounts = dict(board.measure(work))
        if promise is not None and promise.start <= board.time:
            for name, amount in board.limits.amounts(work, promise.placement).items():
                amounts[name] -= amount
        return board.limits.inside(work.group, amounts)
