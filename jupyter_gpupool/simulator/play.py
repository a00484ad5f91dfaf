"""Simulations from their settings to their figures.

Owns: putting clock, events and figures together, and playing several at once. Never: a file.
"""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jupyter_gpupool.simulator.engine import Setting, Simulation
from jupyter_gpupool.simulator.figures import figures
from jupyter_gpupool.simulator.journal import Event, pool_line
from jupyter_gpupool.simulator.workload import Workload

YOUNG_OBJECTS = 50_000


@dataclass(frozen=True)
class Result:
    """What came of one simulation.

    Attributes
    ----------
    pool, events
        What the file of events holds.
    refused, because
        How many tasks could never run, and why the first could not.
    """

    name: str
    pool: Event
    events: list[Event]
    figures: dict[str, Any]
    refused: int
    because: str


@dataclass(frozen=True)
class Play:
    """What is to be played: a setting, with one workload or several that differ by chance."""

    name: str
    setting: Setting
    workloads: Sequence[Workload]


def play_all(plays: Sequence[Play]) -> list[list[Result]]:
    """Play each with all its workloads, on as many processors as there are; errors as in `play`."""
    each = [(found.name, found.setting, workload) for found in plays for workload in found.workloads]
    if len(each) == 1:
        return [[play(*each[0])]]
    with ProcessPoolExecutor(min(len(each), os.cpu_count() or 1)) as workers:
        results = iter(list(workers.map(play, *zip(*each, strict=True))))
    return [[next(results) for _ in found.workloads] for found in plays]


def play(name: str, setting: Setting, workload: Workload) -> Result:
    """Play a workload.

    Raises
    ------
    WorkloadError
        The policy lacks a group, a priority or a window that the workload names.
    """
    simulation = Simulation(setting, workload.tasks)
    frame = simulation.frame
    with _calm_collector():
        simulation.run()
    pool = pool_line(frame, setting.policy, setting.start, simulation.end - setting.start)
    events, refused = simulation.journal.events, simulation.refused
    return Result(name, pool, events, figures(pool, events), refused.count, refused.because)


@contextmanager
def _calm_collector() -> Iterator[None]:
    """Let the garbage collector look rarely: each pass makes thousands of objects, and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def spread(results: Sequence[Result]) -> dict[str, tuple[Any, Any, Any]]:
    """Return for each figure its median, least and greatest value over several runs; None: it has none."""
    found = {}
    for name in results[0].figures:
        values = [value for result in results if (value := result.figures[name]) is not None]
        found[name] = (statistics.median(values), min(values), max(values)) if values else (None, None, None)
    return found
