"""Busy weeks, rechecked by an outsider: lending, borrowing, claims of sessions, reclaim, hand-back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.simulator.engine import Setting
from jupyter_gpupool.simulator.journal import write_events
from jupyter_gpupool.simulator.play import Result, play
from jupyter_gpupool.simulator.scenarios import SCENARIOS, TYPICAL, poisson
from jupyter_gpupool.simulator.workload import Task
from tests.simulator.outsider import Story, faults, figures, read

Run = Callable[..., Result]
HOUR, DAY = 3600, 86400
SHARED = """
timezone: Europe/Berlin
calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}
partitions:
  development: {gpus: ["node1:*"], for: [session], slices: [{share: 1/4}, {gpus: 1}],
    lend: {to: training, during: night, by_day: true, headroom: 4, settle: 1h}}
  training: {gpus: ["node2:*"], for: [job]}
groups:
  vision: {quota: {gpus: 4}}
  speech: {quota: {gpus: 3}, lend: {gpus: 2}}
  guests: {quota: {gpus: 1}, limit: {gpus: 3}}
jobs: {grace: 2m, min_run_time: 10m, borrow_max_time: 4h}
"""


def busy(seed: int, days: int = 3) -> list[Task]:
    """Make a few days of sessions by day and jobs at any hour: most can resume, some are long."""
    draw = Random(seed)
    tasks = []
    for _ in range(90 * days):
        group = draw.choices(("vision", "speech", "guests"), (4, 3, 2))[0]
        user = f"{group}{draw.randrange(3)}"
        if draw.random() < 0.3:
            at = draw.randrange(days) * DAY + 8 * HOUR + draw.randrange(4 * HOUR)
            mib = draw.choice((8192, 8192, 32768))
            stay = draw.randrange(HOUR, 9 * HOUR)
            tasks.append(Task(at, stay, 10 * HOUR, mib // 32768, mib % 32768, group, user, kind="session"))
        else:
            work = int(draw.paretovariate(1.1) * 900)
            gpus = draw.choice((1, 1, 1, 2, 4))
            resumable = draw.random() < 0.8
            limit = min(work + draw.randrange(HOUR), 30 * HOUR)
            at = draw.randrange(days * DAY)
            tasks.append(Task(at, min(work, 40 * HOUR), limit, gpus, 0, group, user, resumable=resumable))
    return tasks


def told(result: Result, tmp_path: Path) -> Story:
    """Return what the file of events tells; every figure follows from it."""
    path = tmp_path / "events.jsonl"
    write_events(path, result.pool, result.events)
    story = read(path)
    for name, value in figures(story).items():
        assert result.figures[name] == pytest.approx(value), name
    return story


def causes(story: Story) -> Counter[str]:
    return Counter(event["cause"] for event in story.events if event["event"] == "stop_asked")


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"plan_every": 900},
        {"resume": "lose"},
        {"latency": 60},
        {"horizon": 2 * DAY},
    ],
    ids=str,
)
def test_a_shared_pool_keeps_every_rule(run: Run, tmp_path: Path, setting: dict[str, Any]) -> None:
    story = told(run(busy(1), policy=SHARED, pool="2x4x32GiB", **setting), tmp_path)
    assert faults(story, latency=setting.get("latency", 0)) == []
    assert {"hand_back", "session", "reclaim"} <= causes(story).keys(), "all of it happens"
    starts = [event for event in story.events if event["event"] == "start"]
    assert any(event["lent"] for event in starts)
    assert any(event["borrowed"] for event in starts)


@pytest.mark.parametrize("seed", range(2, 5))
def test_other_weeks_too(run: Run, tmp_path: Path, seed: int) -> None:
    assert faults(told(run(busy(seed, days=2), policy=SHARED, pool="2x4x32GiB"), tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "jobs", "touched"),
    [("site-before", 160, 17), ("site-split", 368, 21), ("site-pooled", 413, 23.5)],
)
def test_the_site_reaches_its_numbers(tmp_path: Path, name: str, jobs: int, touched: float) -> None:
    scenario = SCENARIOS[name]
    policy, start = load_policy(scenario.policy), scenario.workload.start or 0
    setting = Setting(SimulatedPool.parse(scenario.pool), policy, start, scenario.horizon)
    result = play(name, setting, scenario.workload)
    assert result.figures["jobs_per_week"] >= jobs
    if name != "site-pooled":
        assert result.figures["jobs_per_week"] == jobs
    assert result.figures["touched_hours_per_card_day"] >= touched
    assert result.figures["jobs_unfinished"] > 0, "the queue is never empty"
    story = told(result, tmp_path)
    assert faults(story) == []
    assert story.longest_session_wait <= policy.jobs.grace + 60


def test_a_pooled_site_with_random_jobs_keeps_every_rule(tmp_path: Path) -> None:
    scenario = SCENARIOS["site-pooled"]
    workload = poisson(scenario.workload, TYPICAL, scenario.horizon, seed=1)
    policy, start = load_policy(scenario.policy), workload.start or 0
    setting = Setting(SimulatedPool.parse(scenario.pool), policy, start, 2 * DAY, plan_every=4 * HOUR)
    story = told(play("random", setting, workload), tmp_path)
    assert faults(story) == []
    assert story.longest_session_wait <= policy.jobs.grace + 60
    slow = told(play("slow", replace(setting, latency=60), workload), tmp_path)
    assert faults(slow, latency=60) == []
