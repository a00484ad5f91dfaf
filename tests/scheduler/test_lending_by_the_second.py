"""Lending against its rules, second by second."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.scheduler.board import Board
from jupyter_gpupool.scheduler.model import Lease, Lend, Placement, Reservation, Settings, Work
from jupyter_gpupool.scheduler.plan import plan
from tests.scheduler.lent import GIB, card, site

CARDS = 3
HORIZON = 70

_windows = st.lists(st.integers(1, 60), min_size=2, max_size=6, unique=True).map(
    lambda edges: tuple(list(pairwise(sorted(edges)))[::2])
)
_lends = st.builds(
    Lend,
    to=st.just("training"),
    window=st.just("night"),
    by_day=st.booleans(),
    headroom=st.integers(0, 10),
    slice=st.just((1, 4)),
    settle=st.integers(0, 8),
)
_kept = st.tuples(st.integers(0, CARDS - 1), st.integers(0, 50), st.integers(1, 20))
_held = st.tuples(st.integers(0, CARDS - 1), st.integers(1, 40), st.integers(1, 32), st.booleans())


class Rules:
    """The rules as they are written, for one moment, without a timeline."""

    def __init__(
        self,
        lend: Lend,
        windows: tuple[tuple[int, int], ...],
        least: int,
        reservations: tuple[Reservation, ...],
    ) -> None:
        self.lend, self.windows, self.least, self.reservations = lend, windows, least, reservations

    def back(self, time: int) -> int:
        return min((end for _, end in self.windows if end > time), default=1 << 40)

    def night(self, time: int) -> bool:
        return any(first <= time < last for first, last in self.windows)

    def allow(self, job: Work, time: int) -> bool:
        if self.back(time) - time < self.least + job.grace:
            return False
        if self.night(time):
            return job.resumable or time + job.limit <= self.back(time)
        ended = max((end for _, end in self.windows if end <= time), default=-100)
        return self.lend.by_day and job.resumable and time >= ended + self.lend.settle

    def fits(self, job: Work, time: int, leases: list[Lease]) -> bool:
        """Say whether a card is idle for as long as the job stays, and enough of the others free by day."""
        if not self.allow(job, time):
            return False
        moments = range(time, min(time + job.limit, self.back(time), HORIZON * 3))
        return any(all(self._leaves(number, at, time, leases) for at in moments) for number in range(CARDS))

    def _leaves(self, number: int, at: int, start: int, leases: list[Lease]) -> bool:
        free = [32 * GIB] * CARDS
        for lease in leases:
            end = min(lease.end, self.back(lease.start)) if lease.kind == "job" else lease.end
            if at < end:
                index = int(lease.placement.gpus[0].uuid[-1])
                free[index] -= 32 * GIB if lease.kind == "job" else lease.placement.gpus[0].mib
        for one in self.reservations:
            if one.start <= at < one.end:
                free[int(min(one.gpus)[-1])] = 0
        if free[number] < 32 * GIB:
            return False
        free[number] = 0
        slices = sum(mib // (8 * GIB) for mib in free)
        return self.night(start) or self.night(at) or slices >= self.lend.headroom


@settings(max_examples=150, deadline=None)
@given(
    lend=_lends,
    windows=_windows,
    held=st.lists(_held, max_size=6),
    kept=st.lists(_kept, max_size=2),
    limit=st.integers(1, 30),
    resumable=st.booleans(),
    grace=st.integers(0, 3),
    part=st.booleans(),
)
def test_the_board_agrees_with_the_rules_at_every_second(
    pool: Any,
    lend: Lend,
    windows: tuple[tuple[int, int], ...],
    held: list[tuple[int, int, int, bool]],
    kept: list[tuple[int, int, int]],
    limit: int,
    resumable: bool,
    grace: int,
    part: bool,
) -> None:
    leases: list[Lease] = []
    full = [0] * CARDS
    for id_, (number, end, gib, is_job) in enumerate(held, start=10):
        taken = 32 if is_job else gib
        if full[number] + taken <= 32:
            full[number] += taken
            work = (pool.job if is_job else pool.session)(id_, gpu_mib=gib * GIB, resumable=is_job)
            leases.append(pool.lease(work, card(pool, number), end))
    size = {"gpu_mib": 5 * GIB} if part else {}
    job = pool.job(1, limit=limit, resumable=resumable, grace=grace, **size)
    least = Settings(min_run_time=4)
    reservations = tuple(
        Reservation(id_, frozenset({card(pool, number)[0].uuid}), start, start + length)
        for id_, (number, start, length) in enumerate(kept)
    )
    snapshot = site(
        pool, [job], leases, lend, CARDS, windows=windows, settings=least, reservations=reservations
    )
    rules = Rules(lend, windows, 4, reservations)
    board = Board(snapshot, 0)
    found = board.earliest(job)
    first = next((time for time in range(HORIZON) if rules.fits(job, time, leases)), None)
    assert (found and found[0]) == first
    if found is not None:
        assert board.holds(job, found[1], found[0])
    estimated = plan(replace(snapshot, settings=replace(least, promises=0)), 0)
    assert bool(estimated.starts) is (first == 0)
    assert bool(estimated.starts) or estimated.verdicts[1].expected_start == first
    for time in range(HORIZON):
        board.advance(time)
        for one in board.floor.cards.values():
            board.floor.refresh(one)
        assert isinstance(board.attempt(job), Placement) is rules.fits(job, time, leases), time
