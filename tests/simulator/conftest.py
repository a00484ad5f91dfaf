"""A small pool, a small policy, and one way to play a few tasks on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from jupyter_gpupool.devices.simulated import SimulatedPool
from jupyter_gpupool.policy.load import load_policy
from jupyter_gpupool.simulator.engine import Setting
from jupyter_gpupool.simulator.play import Result, play
from jupyter_gpupool.simulator.workload import Task, Workload, ordered

MONDAY = 1_796_000_000 - 1_796_000_000 % 86400
POLICY = """
calendars: {night: {weekly: ["Mon-Sun 20:00-08:00"]}}
partitions: {all: {gpus: ["*:*"], for: [session, job], slices: [{share: 1/8, cpus: 1}, {gpus: 1}]}}
groups:
  everyone: {quota: {gpus: 4}}
  small: {quota: {gpus: 1}, limit: {gpus: 1}}
"""


@pytest.fixture
def run() -> Callable[..., Result]:
    """Play tasks on four cards of 32 GiB."""

    def play_tasks(
        tasks: Iterable[Task], *, policy: str = POLICY, pool: str = "1x4x32GiB", **setting: Any
    ) -> Result:
        simulated = SimulatedPool.parse(pool)
        how = Setting(simulated, load_policy(policy), MONDAY, **setting)
        return play("test", how, Workload("test", ordered(tasks)))

    return play_tasks


def happened(result: Result, *names: str) -> list[tuple[int, str, int]]:
    """Return (time, event, id) of the events of some kinds, promises and submissions apart."""
    return [
        (event["t"], event["event"], event["id"])
        for event in result.events
        if event["event"] in (names or ("start", "end"))
    ]
