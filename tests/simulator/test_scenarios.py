"""What is made, not read: the built-in site, random arrivals, a policy by work; and one golden run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.simulator.engine import Setting
from jupyter_gpupool.simulator.play import Result, play
from jupyter_gpupool.simulator.quotas import divided, policy_for
from jupyter_gpupool.simulator.scenarios import SCENARIOS, poisson
from jupyter_gpupool.simulator.workload import Task, Workload, WorkloadError
from tests.simulator.conftest import happened

WEEK = 7 * 86400


def test_the_site_before_a_pool_finishes_160_jobs_a_week() -> None:
    scenario = SCENARIOS["site-before"]
    setting = Setting(
        SimulatedPool.parse(scenario.pool),
        load_policy(scenario.policy),
        scenario.workload.start or 0,
        scenario.horizon,
    )
    found = play("site-before", setting, scenario.workload).figures
    assert found["jobs_per_week"] == 160
    assert found["touched_hours_per_card_day"] == pytest.approx((5 * 12 + 5 * 12) / 7)
    assert found["session_wait_p95_s"] == 0
    assert found["jobs_unfinished"] > 0, "the queue is never empty"


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_a_policy_that_its_work_fits(name: str) -> None:
    scenario = SCENARIOS[name]
    policy, pool = load_policy(scenario.policy), SimulatedPool.parse(scenario.pool)
    setting = Setting(pool, policy, scenario.workload.start or 0, 3600)
    assert play(name, setting, scenario.workload).refused == 0


def test_random_arrivals_come_from_the_seed_and_ask_for_as_much() -> None:
    sessions = (Task(0, 100, 100, kind="session"),)
    base = Workload("w", (*sessions, *(Task(0, 1000, 1000, 1, user=f"u{n}") for n in range(300))))
    trace = Workload("t", (Task(0, 50, 60, 1), Task(0, 200, 220, 2)))
    drawn = poisson(base, trace, 10_000, seed=1)
    assert drawn == poisson(base, trace, 10_000, seed=1) != poisson(base, trace, 10_000, seed=2)
    jobs = [task for task in drawn.tasks if task.kind == "job"]
    assert {(task.duration, task.limit, task.gpus) for task in jobs} == {(50, 60, 1), (200, 220, 2)}
    assert {task.user for task in jobs} <= {task.user for task in base.tasks}
    assert sum(task.gpus * task.duration for task in jobs) == pytest.approx(300_000, rel=0.15)
    assert [task for task in drawn.tasks if task.kind == "session"] == list(sessions)


def test_cards_are_divided_by_work_and_nobody_gets_less_than_a_node() -> None:
    assert divided({"a": 100, "b": 100, "c": 0}, 32, 8) == {"a": 12, "b": 12, "c": 8}
    assert divided({"a": 5, "b": 3, "c": 2}, 7, 0) == {"a": 4, "b": 2, "c": 1}
    assert divided({"a": 90, "b": 9, "c": 1}, 100, 10) == {"a": 80, "b": 10, "c": 10}
    assert divided({"a": 1}, 4, 0) == {"a": 4}


def test_a_workload_without_a_policy_gets_one() -> None:
    tasks = [Task(0, 100, 100, 1, group="a"), Task(0, 100, 100, 3, group="b: c")]
    policy = load_policy(policy_for(tasks, SimulatedPool.parse("4x8x32GiB")))
    assert {name: group.quota.gpus for name, group in policy.groups.items()} == {"a": 8000, "b: c": 24000}
    with pytest.raises(WorkloadError, match="16 cards, and the pool has 8"):
        policy_for(tasks, SimulatedPool.parse("1x8x32GiB"))


def test_golden(run: Callable[..., Result]) -> None:
    """A day on four cards, worked out by hand; whoever changes it says why.

    ada's notebook takes a slice of card 0 until 10:00, which jobs do not share; jobs 2 and 3 take the rest.
    Job 4 wants three cards: promised 1200, the limit of job 3, it gets them at 900, when job 3 is over.
    Job 5 would be in its way from 600 on, and waits for its end; job 6 is gone in time, and passes. Job 7
    wants all four cards at night: at midnight ada is in its way, so it starts at 20:00.
    """
    tasks = [
        Task(0, 36000, 36000, mib=4096, user="ada", kind="session"),
        Task(0, 600, 600, 2, user="bob"),
        Task(0, 900, 1200, 1, user="cy"),
        Task(60, 300, 300, 3, user="di"),
        Task(120, 2000, 2000, 1, user="eve"),
        Task(180, 60, 60, mib=28 * 1024, user="fay"),
        Task(200, 100, 100, 4, user="gus", window="night"),
    ]
    result = run(tasks, plan_every=0)
    assert happened(result) == [
        (0, "start", 1),
        (0, "start", 2),
        (0, "start", 3),
        (600, "end", 2),
        (600, "start", 6),
        (660, "end", 6),
        (900, "end", 3),
        (900, "start", 4),
        (1200, "end", 4),
        (1200, "start", 5),
        (3200, "end", 5),
        (36000, "end", 1),
        (72000, "start", 7),
        (72100, "end", 7),
    ]
    promises = [
        (event["t"], event["id"], event["start_t"], event["cause"])
        for event in result.events
        if event["event"] == "promise"
    ]
    assert promises == [
        (60, 4, 1200, None),
        (120, 5, 1500, None),
        (180, 6, 600, None),
        (200, 7, 72000, None),
        (900, 5, 1200, None),
    ]
    found = result.figures
    assert found["job_wait_mean_s"] == (0 + 0 + 840 + 1080 + 420 + 71800) / 6
    assert found["job_wait_p95_s"] == 71800
    assert found["session_wait_p95_s"] == 0
    touched = 36000 + 2 * 600 + 900 + 3 * 300 + 2000 + 60 + 4 * 100
    assert found["touched_hours_per_card_day"] == pytest.approx(24 * touched / (4 * 72100))
    held = touched - 36000 * 7 / 8 - 60 * 4 / 32
    assert found["held_hours_per_card_day"] == pytest.approx(24 * held / (4 * 72100))
    assert found["eta_error_median"] == (0 + 300 / 1080) / 2, "of 300/840, 300/1080, 0 and 0"
