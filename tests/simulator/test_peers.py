"""The worked values of backfill: 4 cards, one job holds 2 until t = 60, the head wants 4."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpupool.simulator.engine import POLICY, Discipline
from jupyter_gpupool.simulator.peers import EASY, FIFO
from jupyter_gpupool.simulator.play import Result
from jupyter_gpupool.simulator.workload import Task
from tests.simulator.conftest import happened

Run = Callable[..., Result]
HEAD = 2


def starts(result: Result) -> dict[int, int]:
    return {id: t for t, _, id in happened(result, "start")}


@pytest.mark.parametrize("discipline", [EASY, POLICY], ids=lambda one: one.name)
@pytest.mark.parametrize(("limit", "start"), [(50, 0), (60, 0), (61, 160)])
def test_exact_fits_pass_the_head_and_longer_ones_wait(
    run: Run, discipline: Discipline, limit: int, start: int
) -> None:
    tasks = [Task(0, 60, 60, 2), Task(0, 100, 100, 4), Task(0, limit, limit, 2)]
    assert starts(run(tasks, discipline=discipline)) == {1: 0, HEAD: 60, 3: start}


def test_nobody_passes_the_head_where_first_come_is_first_served(run: Run) -> None:
    tasks = [Task(0, 60, 60, 2), Task(0, 100, 100, 4), Task(0, 10, 10, 2), Task(5, 10, 10, 1)]
    assert starts(run(tasks, discipline=FIFO)) == {1: 0, HEAD: 60, 3: 160, 4: 160}


def test_easy_protects_the_head_only(run: Run) -> None:
    """Job 3 cannot pass; job 4 delays job 3, which has no reservation, but not the head."""
    tasks = [Task(0, 60, 60, 3), Task(0, 10, 10, 4), Task(0, 100, 100, 2), Task(0, 60, 60, 1)]
    assert starts(run(tasks, discipline=EASY)) == {1: 0, HEAD: 60, 3: 70, 4: 0}


def test_a_later_submission_passes_only_what_it_does_not_delay(run: Run) -> None:
    tasks = [Task(0, 60, 60, 2), Task(1, 100, 100, 4), Task(20, 40, 40, 2), Task(21, 39, 39, 2)]
    assert starts(run(tasks, discipline=EASY)) == {1: 0, HEAD: 60, 3: 20, 4: 160}


def test_both_know_no_quota(run: Run) -> None:
    tasks = [Task(0, 10, 10, 1, group="small"), Task(0, 10, 10, 1, group="small")]
    for discipline in (FIFO, EASY):
        assert starts(run(tasks, discipline=discipline)) == {1: 0, 2: 0}
    assert starts(run(tasks)) == {1: 0, 2: 10}


def test_a_session_comes_before_jobs_in_both(run: Run) -> None:
    tasks = [Task(0, 60, 60, 4), Task(1, 60, 60, 4), Task(2, 100, 100, 1, kind="session")]
    for discipline in (FIFO, EASY):
        assert starts(run(tasks, discipline=discipline)) == {1: 0, 3: 60, 2: 102}
