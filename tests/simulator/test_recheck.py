"""Anyone can check the figures: here they are computed again from the file of events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jupyter_gpupool.simulator.journal import write_events
from jupyter_gpupool.simulator.peers import EASY
from jupyter_gpupool.simulator.play import Result
from jupyter_gpupool.simulator.room import Room
from jupyter_gpupool.simulator.workload import Task
from tests.simulator.outsider import figures, read


def crowd(seed: int) -> list[Task]:
    """Make jobs and sessions of all sizes; some jobs need longer than their limit."""
    draw = Random(seed)
    tasks = []
    for n in range(150):
        kind = "session" if draw.random() < 0.2 else "job"
        shared = draw.random() < 0.4
        duration = draw.randrange(1, 400)
        tasks.append(
            Task(
                submit=draw.randrange(2000),
                duration=duration,
                limit=duration + draw.randrange(-duration // 4, 200) if kind == "job" else 400,
                gpus=0 if shared else draw.choice((1, 1, 2, 4)) if kind == "job" else 1,
                mib=1024 * draw.randrange(1, 20) if shared and kind == "job" else 4096 if shared else 0,
                user=f"user{n % 5}",
                kind=kind,
                window="night" if kind == "job" and draw.random() < 0.2 else None,
            )
        )
    return [task for task in tasks if task.limit > 0]


@pytest.mark.parametrize("setting", [{}, {"horizon": 1500}, {"latency": 30}, {"discipline": EASY}], ids=str)
def test_the_events_alone_give_every_figure(
    run: Callable[..., Result], tmp_path: Path, setting: dict[str, Any]
) -> None:
    result = run(crowd(5), plan_every=0, **setting)
    path = tmp_path / "events.jsonl"
    write_events(path, result.pool, result.events)
    for name, value in figures(read(path)).items():
        assert result.figures[name] == pytest.approx(value), name


@pytest.mark.parametrize("seed", range(4))
def test_passes_that_are_left_out_would_have_done_nothing(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    quick = run(crowd(seed), plan_every=500, pool="2x2x32GiB")
    monkeypatch.setattr(Room, "may_change", lambda room: True)
    assert run(crowd(seed), plan_every=500, pool="2x2x32GiB").events == quick.events


def test_events_are_in_order_of_time_and_complete(run: Callable[..., Result]) -> None:
    result = run(crowd(6), plan_every=0)
    times = [event["t"] for event in result.events]
    assert times == sorted(times)
    for event in result.events:
        assert {"t", "event", "kind", "id", "user", "group"} <= event.keys()
    assert [-4 * 3600, 8 * 3600] in result.pool["windows"]["night"], (
        "what is open at the start began before it"
    )
    starts = [event for event in result.events if event["event"] == "start"]
    assert all({"gpus", "partition", "borrowed", "lent"} <= start.keys() for start in starts)
    assert len({start["id"] for start in starts}) == len(starts), "nothing is started twice"


@pytest.mark.parametrize("setting", [{}, {"plan_every": 0}, {"latency": 20}], ids=str)
def test_nobody_starts_later_than_promised_without_a_named_cause(
    run: Callable[..., Result], setting: dict[str, Any]
) -> None:
    promised: dict[int, int] = {}
    causes: dict[int, str] = {}
    late = set()
    for event in run(crowd(7), **setting).events:
        id, t = event["id"], event["t"]
        if event["event"] == "promise":
            if event["cause"]:
                causes[id] = event["cause"]
                late.add(event["cause"].split()[0])
            else:
                assert event["start_t"] <= promised.get(id, event["start_t"])
                causes.pop(id, None)
            promised[id] = event["start_t"]
        elif event["event"] == "start" and id in promised:
            assert t <= promised[id] or id in causes
    assert promised
    assert late == {"session"}
