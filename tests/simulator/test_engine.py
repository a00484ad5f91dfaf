"""The virtual clock: what happens at one time, in which order, and how work ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpupool.simulator.play import Result
from jupyter_gpupool.simulator.workload import Task, WorkloadError
from tests.simulator.conftest import happened

Run = Callable[..., Result]
HOUR = 3600


def test_what_ends_makes_room_at_the_same_second(run: Run) -> None:
    result = run([Task(0, 60, 60, 4), Task(60, 10, 10, 4)])
    assert happened(result) == [(0, "start", 1), (60, "end", 1), (60, "start", 2), (70, "end", 2)]


def test_sessions_of_one_moment_come_before_its_jobs(run: Run) -> None:
    result = run([Task(5, 10, 10, 4), Task(5, 100, 100, 1, kind="session", user="ada")])
    assert happened(result)[:2] == [(5, "start", 1), (105, "end", 1)]
    assert [event["kind"] for event in result.events[:2]] == ["session", "job"]


def test_a_window_that_opens_lets_its_jobs_start(run: Run) -> None:
    result = run([Task(0, 60, 60, window="night"), Task(9 * HOUR, 60, 60, window="night")])
    assert happened(result, "start") == [(0, "start", 1), (20 * HOUR, "start", 2)]
    assert [event["eligible_t"] for event in result.events if event["event"] == "submit"] == [0, 20 * HOUR]


def test_a_slow_start_holds_the_card_and_costs_no_work(run: Run) -> None:
    result = run([Task(0, 100, 100, 4), Task(0, 100, 100, 4)], latency=60)
    assert happened(result) == [(0, "start", 1), (160, "end", 1), (160, "start", 2), (320, "end", 2)]
    assert {event["outcome"] for event in result.events if event["event"] == "end"} == {"completed"}


def test_a_limit_is_the_hard_end_and_work_up_to_it_counts(run: Run) -> None:
    result = run([Task(0, 100, 100), Task(0, 101, 100)])
    ends = [(event["t"], event["outcome"]) for event in result.events if event["event"] == "end"]
    assert sorted(ends) == [(100, "completed"), (100, "timed_out")]


def test_people_go_home_when_they_meant_to_however_long_they_waited(run: Run) -> None:
    first = Task(0, 50, 50, 4)
    result = run([first, Task(10, 100, 100, 1, kind="session"), Task(20, 20, 20, 1, kind="session")])
    assert happened(result) == [
        (0, "start", 1),
        (40, "end", 3),
        (50, "end", 1),
        (50, "start", 2),
        (110, "end", 2),
    ]
    outcomes = {event["id"]: event["outcome"] for event in result.events if event["event"] == "end"}
    assert outcomes == {1: "completed", 2: "completed", 3: "cancelled"}


def test_a_session_gets_the_slice_that_holds_what_it_asks_for(run: Run) -> None:
    result = run([Task(0, 10, 10, mib=4000, kind="session", user=f"u{n}") for n in range(9)])
    cards = [event["gpus"][0] for event in result.events if event["event"] == "start"]
    assert {card["memory_mib"] for card in cards} == {4096}
    assert [card["gpu"] for card in cards] == ["SIM-node1-0"] * 8 + ["SIM-node1-1"]


def test_a_promise_is_told_with_its_start_and_kept(run: Run) -> None:
    tasks = [Task(0, 60, 60, 2), Task(1, 30, 30, 4), Task(2, 59, 59, 2), Task(3, 10, 10, 2)]
    result = run(tasks, plan_every=0)
    promise = next(event for event in result.events if event["event"] == "promise")
    assert (promise["id"], promise["start_t"], promise["cause"]) == (2, 60, None)
    assert (60, "start", 2) in happened(result)
    assert (3, "start", 4) in happened(result), "it ends before the promise"


def test_what_can_never_run_is_left_out_and_counted(run: Run) -> None:
    result = run([Task(0, 10, 10, 5), Task(0, 10, 10, 2, group="small"), Task(0, 10, 10, 1)])
    assert result.refused == 2
    assert "4" in result.because
    assert happened(result) == [(0, "start", 3), (10, "end", 3)]


def test_an_unknown_group_is_a_mistake(run: Run) -> None:
    with pytest.raises(WorkloadError, match=r"no group 'smal'.* small"):
        run([Task(0, 10, 10, group="smal")])


def test_nothing_happens_after_the_horizon(run: Run) -> None:
    result = run([Task(0, 100, 100, 4), Task(0, 100, 100, 4), Task(150, 10, 10)], horizon=100)
    assert happened(result) == [(0, "start", 1), (100, "end", 1), (100, "start", 2)]
    assert result.figures["horizon_s"] == 100


def test_the_group_that_had_less_lately_comes_first(run: Run) -> None:
    policy = """
partitions: {all: {gpus: ["*:*"], for: [job]}}
groups: {a: {quota: {gpus: 4}}, b: {quota: {gpus: 4}}}
jobs: {promises: 0}
"""
    tasks = [Task(0, 100, 100, 4, group="a"), Task(1, 10, 10, 4, group="a"), Task(2, 10, 10, 4, group="b")]
    assert [id for _, _, id in happened(run(tasks, policy=policy), "start")] == [1, 3, 2]


def test_whole_plans_tell_those_that_come_when_they_start(run: Run) -> None:
    tasks = [Task(0, 90, 100, 4), Task(10, 10, 10, 4), Task(20, 10, 10, 4), Task(200, 10, 10)]
    told = happened(run(tasks, plan_every=0), "estimate")
    assert told == [(10, "estimate", 2), (20, "estimate", 3)]
    assert happened(run(tasks, plan_every=15), "estimate") == [(20, "estimate", 3)]
    estimate = next(event for event in run(tasks, plan_every=0).events if event["event"] == "estimate")
    assert estimate["start_t"] == 100, "the limit is what the scheduler knows"


def test_age_grows_at_whole_plans_and_lifts_a_class(run: Run) -> None:
    """A stream of a higher class keeps the low job waiting; after a week it is as high."""
    day = 86400
    policy = """
partitions: {all: {gpus: ["*:*"], for: [job]}}
groups: {everyone: {quota: {gpus: 8}}}
priorities: {low: {value: 0}, normal: {value: 100}}
jobs: {promises: 0}
"""
    stream = [Task(n * day // 2, day, day, 4, user="stream") for n in range(24)]
    low = Task(1, 60, 60, 4, user="low", priority="low")
    started = {id: t for t, _, id in happened(run([*stream, low], policy=policy), "start")}
    assert 7 * day <= started[2] <= 9 * day
