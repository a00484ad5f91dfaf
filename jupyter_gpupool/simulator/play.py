"""One simulation from its setting to its figures.

Owns: putting clock, events and figures together. Never: a file.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_gpupool.simulator.engine import Setting, Simulation
from jupyter_gpupool.simulator.figures import figures
from jupyter_gpupool.simulator.journal import Event, pool_line
from jupyter_gpupool.simulator.workload import Workload


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


def play(name: str, setting: Setting, workload: Workload) -> Result:
    """Play a workload.

    Raises
    ------
    WorkloadError
        The policy lacks a group, a priority or a window that the workload names.
    """
    simulation = Simulation(setting, workload.tasks)
    simulation.run()
    pool = pool_line(simulation.frame, setting.policy, setting.start, simulation.end - setting.start)
    events, refused = simulation.journal.events, simulation.refused
    return Result(name, pool, events, figures(pool, events), refused.count, refused.because)


def spread(results: Sequence[Result]) -> dict[str, tuple[Any, Any, Any]]:
    """Return for each figure its median, least and greatest value over several runs; None: it has none."""
    found = {}
    for name in results[0].figures:
        values = [value for result in results if (value := result.figures[name]) is not None]
        found[name] = (statistics.median(values), min(values), max(values)) if values else (None, None, None)
    return found
